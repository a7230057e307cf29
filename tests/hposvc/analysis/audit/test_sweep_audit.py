"""Audits of whole sweeps: each line states a fact of the journal."""

from audits import of_sweep
from simulated_sweeps import at_desk, make_spec

from hposvc.events import Ended, Finished, Suggested


def whats(lines):
    return [line.what for line in lines]


def test_a_sweep_s_own_decisions_are_told(lab):
    spec = make_spec()
    state = lab.run(spec)
    lines = of_sweep(spec, lab.events())
    assert whats(lines) == ["driven", "closed", "finished"]
    assert lines[1].detail["reason"] == "trials"
    assert lines[2].detail == {"state": "COMPLETED", "reason": state.reason, "best": state.best}


def test_a_parameter_that_the_sweep_lacks_is_told_at_its_first_value():
    desk = at_desk(parameters={"lrr": {"min": 0.1, "max": 1.0}})
    domain = {"min": 0.1, "max": 1.0}
    for value in (0.25, 0.75):
        order = desk.start()
        desk.happen(Suggested(desk.time, order.id, order.trial, "lr", value, domain))
    [line] = [line for line in of_sweep(desk.state.spec, desk.log) if line.what == "unsearched"]
    assert line.why.startswith("lr is drawn at random, not searched")
    assert line.why.endswith("did the spec mean it by 'lrr'?")
    assert line.detail == {"name": "lr", "domain": domain}


def test_a_parameter_that_no_trial_asked_for_is_told_at_the_end():
    desk = at_desk(parameters={"lr": {"min": 0.1, "max": 1.0}})
    order = desk.start()
    desk.happen(Ended(desk.time, order.id, order.trial, "returned", ("lr",)))
    assert "unused" not in whats(of_sweep(desk.state.spec, desk.log))
    desk.happen(Finished(desk.time, "STOPPED", "user"))
    *_, line, last = of_sweep(desk.state.spec, desk.log)
    assert (line.what, line.detail, last.what) == ("unused", {"name": "lr"}, "finished")
    assert line.why.startswith("lr is searched for nothing: no trial has asked for it")
