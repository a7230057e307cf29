"""Audits, which explain trials: each line states a fact of the journal."""

import json

import pytest
from audits import of_sweep, of_trial
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import CALLS, Flaky, Lab, at_desk, make_several, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.events import Attached, Failed, Ordered, Proposed, Requested

PBT = {"type": "pbt", "interval": 1, "quantile": 0.5, "mutate": {"lr": {}}}
TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}


def audit(desk, trial):
    return of_trial(desk.controller.spec, desk.log, trial)


def only(lines, what):
    (line,) = [line for line in lines if line.what == what]
    return line


def test_a_model_s_proposal_is_told_with_what_the_model_thought(lab):
    spec = make_spec(search="gp", trials={"max": 14, "parallel": 2})
    lab.run(spec)
    notes = {event.trial: event.note for event in lab.events() if isinstance(event, Proposed)}
    modelled = next(name for name, note in notes.items() if note["source"] == "model")
    line = only(of_trial(spec, lab.events(), modelled), "proposed")
    note = notes[modelled]
    assert line.detail["note"] == note
    assert f"mean {note['mean']:.5g}, deviation {note['deviation']:.5g}" in line.why
    assert f"acquisition {note['acquisition']:.5g}" in line.why
    assert line.why.startswith(f"search gp, model {note['model']}: {note['reason']}")
    first = only(of_trial(spec, lab.events(), "t0001"), "proposed")
    assert first.why == "search gp, quasi-random design: the first trials"


def test_a_model_s_mean_has_the_metric_s_own_sign():
    spec = make_spec(metric={"name": "loss", "goal": "maximize"})
    note = {"source": "model", "model": "power", "mean": -0.9, "deviation": 0.1}
    events = [Proposed(1.0, "t0001", {"lr": 0.1}, note, 9)]
    why = only(of_trial(spec, events, "t0001"), "proposed").why
    assert why == "search random, model power; mean 0.9, deviation 0.1"


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_a_stop_names_the_rung_and_who_was_better_there(goal):
    """Values have the metric's own sign, and only trials that had reached the rung are named."""
    sign = 1 if goal == "minimize" else -1
    desk = at_desk(scheduler="asha", metric={"name": "loss", "goal": goal})
    orders = [desk.start() for _ in range(4)]
    for order, loss in zip(orders[:3], (0.1, 0.2, 0.3), strict=True):
        desk.report(order, 1, sign * loss)
    desk.report(orders[3], 1, sign * 0.05)
    line = only(audit(desk, "t0003"), "stopped")
    assert line.detail["compared"] == {
        **{"step": 1, "value": sign * 0.3, "of": 3, "better": 2},
        "rivals": [
            {"trial": f"t000{place}", "step": 1, "value": sign * place / 10} for place in (1, 2, 3)
        ],
    }
    assert line.detail["reason"] == "rung"
    last = sign * 0.3
    assert line.why.endswith(f"so far: t0001 {sign * 0.1}, t0002 {sign * 0.2}, [t0003 {last}]")
    assert line.why.startswith("rung; rank 3 of 3 at step 1, top 1 continue")
    assert only(audit(desk, "t0004"), "continued").detail["compared"]["better"] == 0


def test_a_stop_for_a_trial_s_own_curve_names_no_other_trial():
    desk = at_desk(scheduler={"type": "fifo", "plateau": {"patience": 2}})
    order = desk.start()
    for step in (1, 2, 3):
        desk.report(order, step, 0.5)
    line = only(audit(desk, "t0001"), "stopped")
    assert line.detail["reason"] == "plateau"
    assert line.detail["compared"] is None
    assert "rank" not in line.why


def test_a_promotion_tells_where_the_trial_stood_when_it_was_promoted(lab):
    spec = make_spec(scheduler={"type": "asha", "mode": "promote"})
    state = lab.run(spec)
    lines = of_trial(spec, lab.events(), state.best)
    promoted = [line for line in lines if line.what == "ordered"][1:]
    assert [line.step for line in promoted] == [1, 3]
    for line in promoted:
        compared = line.detail["compared"]
        assert compared["better"] < compared["of"] // 3  # eta
        assert "it goes on; rank " in line.why
    left = next(name for name, trial in state.trials.items() if trial.reason == "rung")
    ended = only(of_trial(spec, lab.events(), left), "ended")
    assert ended.why.startswith("STOPPED; rung; loss ")
    rung = state.trials[left].step
    assert ended.detail["compared"]["of"] == sum(
        rung in trial.steps for trial in state.trials.values()
    )


def test_an_exploit_names_donor_its_value_and_what_changed(lab):
    spec = make_spec(scheduler=PBT, trials={"max": 4, "parallel": 2})
    state = lab.run(spec)
    copies = [
        event.order
        for event in lab.events()
        if isinstance(event, Ordered) and event.order.parent is not None
    ]
    assert copies
    for order in copies:
        lines = of_trial(spec, lab.events(), order.trial)
        line = next(
            line for line in lines if line.what == "exploited" and line.detail["order"] == order.id
        )
        detail, donor = line.detail, state.trials[order.parent]
        assert detail["donor"] == donor.id
        assert detail["donor_value"] == donor.steps[order.start.step]
        assert detail["changed"]["lr"][1] == order.params["lr"]
        assert f"from {donor.id}'s checkpoint of step {order.start.step}" in line.why
        before = lines[lines.index(line) - 1]
        assert before.step == order.first - 1
        named = [entry.detail["by"] for entry in of_trial(spec, lab.events(), donor.id)
                 if entry.what == "copied"]  # fmt: skip
        assert order.trial in named


def test_a_failure_tells_its_cause_and_how_many_tries_are_left():
    desk = at_desk(failure={"user_retries": 1})
    first = desk.start()
    desk.report(first, 1, 0.5)
    desk.happen(Failed(2.0, first.id, "t0001", "user", "Traceback\nValueError: bad lr\n"))
    again = desk.start()
    desk.fail(again, "user")
    lines = audit(desk, "t0001")
    retried, lost = [line for line in lines if line.what == "failed"]
    assert retried.why == "user: ValueError: bad lr; it is tried again (1 of 1 for user)"
    assert (retried.detail["again"], retried.detail["count"], retried.detail["allowed"]) == (
        True,
        1,
        1,
    )
    assert not lost.detail["again"]
    assert "it is given up" in lost.why
    orders = [line for line in lines if line.what == "ordered"]
    assert orders[1].why == "steps 2 to 9 from its checkpoint of step 1: tried again after user"
    assert lines[-1].why == "FAILED; user; loss 0.5"


def test_a_lost_driver_and_what_people_asked_for_are_told():
    desk = at_desk()
    order = desk.start()
    desk.happen(Attached(1.0, "there:7"))
    desk.start()
    desk.happen(Requested(2.0, "kill", order.trial, by="me@desk"))
    lines = audit(desk, order.trial)
    assert "there:7 took the sweep over" in only(lines, "lost").why
    ordered = [line for line in lines if line.what == "ordered"]
    assert ordered[1].why.endswith("the driver before was lost")
    assert only(lines, "asked").why == "me@desk: kill t0001"
    assert only(lines, "killed").detail["compared"] is None


def test_a_finalist_s_replicates_are_told_and_are_no_rivals(lab):
    spec = make_spec(trials={"max": 2, "parallel": 1}, finalists={"top": 1, "seeds": 2})
    state = lab.run(spec)
    lines = of_trial(spec, lab.events(), state.best)
    replicates = [line for line in lines if line.what == "replicated"]
    assert [line.detail["replicate"] for line in replicates if "value" in line.detail] == [1, 2]
    assert replicates[0].why.startswith("replicate 1: steps 1 to 9 from nothing")
    assert only(lines, "ordered").detail["first"] == 1
    assert len([line for line in lines if line.what == "saved"]) == 9


SCHEDULERS = [*("fifo", "asha", "median", "hyperband"), {"type": "asha", "mode": "promote"}, PBT]


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(
    scheduler=st.sampled_from(SCHEDULERS),
    seed=st.integers(0, 99),
    share=st.floats(0, 1),
    backend=st.sampled_from([Simulation, Flaky]),
    several=st.booleans(),
)
def test_any_beginning_of_a_journal_can_be_audited(
    tmp_path_factory, scheduler, seed, share, backend, several
):
    """Each trial's lines are in order of time, end with the trial's state, and are plain data."""
    CALLS.clear()
    lab = Lab.at(tmp_path_factory.mktemp("lab"))
    trials = {"max": 6, "parallel": 3}
    if several and scheduler != PBT:
        spec = make_several(scheduler=scheduler, seed=seed, trials=trials)
    else:
        failure = {"user_retries": 1}
        sections = {"engine": TROUBLED, "seed": seed, "trials": trials, "failure": failure}
        spec = make_spec(scheduler=scheduler, **sections)
    state = lab.run(spec, backend=backend)
    events = lab.events()
    some = events[: round(share * len(events))]
    proposed = {event.trial for event in some if isinstance(event, Proposed)}
    for trial in state.trials:
        lines = of_trial(spec, some, trial)
        assert bool(lines) == (trial in proposed)
        assert [line.time for line in lines] == sorted(line.time for line in lines)
        json.dumps([line.data() for line in lines], allow_nan=False)
        all_lines = of_trial(spec, events, trial)
        assert all_lines[: len(lines)] == lines
        ends = [line.detail["state"] for line in all_lines if line.what == "ended"]
        assert ends[-1:] == [state.trials[trial].state]
    of_sweep(spec, some)
