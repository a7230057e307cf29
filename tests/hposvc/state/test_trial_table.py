"""The life cycle of a trial: each transition has a story here, and no other ever happens."""

from dataclasses import replace

import pytest
from simulated_sweeps import Desk, at_desk, make_controller, make_spec

from hposvc.events import Attached, Ended, Failed, Finished, Ordered, Reported, Requested
from hposvc.state.checkpoints import CheckpointManager
from hposvc.state.trial import TRANSITIONS, TrialPhase, TrialState
from hposvc.state.trial_table import TrialTable

PROMOTE = {"type": "asha", "eta": 3, "mode": "promote"}
PBT = {"type": "pbt", "interval": 2, "mutate": {"lr": {}}}


def stories():
    """Return every transition of the table."""
    return [(before, after) for before in TRANSITIONS for after in sorted(TRANSITIONS[before])]


def paused():
    """Return a desk whose first trial is paused at the first rung."""
    desk = at_desk(scheduler=PROMOTE)
    order = desk.start()
    desk.report(order, order.until, 1.0)
    desk.end(order)
    return desk


def failed(desk: Desk) -> Desk:
    """Let the first trial fail for good."""
    desk.fail(desk.start(), "user")
    return desk


def undecided(scheduler, step):
    """Return a desk whose driver died between a report at a rung and the decision on it."""
    desk = at_desk(scheduler=scheduler)
    order = desk.start()
    desk.keep(order, step)
    desk.controller.apply(Reported(0.0, order.id, order.trial, step, {"loss": 1.0}))
    return desk, order


def end_sweep(desk: Desk) -> None:
    """Let somebody end the sweep, and what runs heed it."""
    desk.happen(Requested(desk.time, "stop"))
    for trial in list(desk.state.trials.running()):
        desk.end(trial.order)
    desk.happen(Finished(desk.time, "STOPPED", "user"))


def pending_running():
    desk = at_desk()
    desk.start()
    return desk


def pending_paused():
    desk, _ = undecided(PBT, 2)
    desk.happen(Attached(0.0, "here:2"))
    return desk


def pending_stopped():
    desk = at_desk()
    desk.fail(desk.start(), "infra")
    desk.happen(Requested(desk.time, "stop", "t0001"))
    return desk


def pending_failed():
    desk = at_desk(failure={"infra_retries": 3})
    order = desk.start()
    desk.report(order, 1, 1.0)
    desk.report(order, 2, 1.0)
    desk.fail(order, "infra")
    desk.cool()
    other = replace(desk.controller.next(), params={"lr": 0.05})
    desk.happen(Ordered(desk.time, other))
    desk.fail(other, "infra", damaged=True)  # its values were never tried from the beginning
    return desk


def running_pending():
    desk = at_desk()
    desk.fail(desk.start(), "infra")
    return desk


def running_completed():
    desk = at_desk()
    order = desk.start()
    desk.report(order, order.until, 1.0)
    desk.end(order)
    return desk


def running_stopped():
    desk = at_desk()
    order = desk.start()
    desk.happen(Requested(desk.time, "stop", order.trial))
    desk.end(order)
    return desk


def running_failed():
    return failed(at_desk())


def paused_running():
    desk = paused()
    for loss in (2.0, 3.0):
        order = desk.start()
        desk.report(order, order.until, loss)
        desk.end(order)
    assert desk.start().trial == "t0001"
    return desk


def paused_stopped():
    desk = paused()
    desk.happen(Requested(desk.time, "stop", "t0001"))
    return desk


def completed_running():
    desk = Desk(make_controller(make_spec(trials={"max": 1})))
    order = desk.start()
    desk.report(order, order.until, 1.0)
    desk.end(order)
    desk.happen(desk.controller.finish(desk.time))
    desk.happen(Requested(desk.time, "extend", changes={"fidelity.max": 12}))
    assert desk.start().first == 10
    return desk


def stopped_pending():
    desk = at_desk()
    desk.start()
    end_sweep(desk)
    desk.happen(Requested(desk.time, "extend", changes={"trials.max": 20}))
    return desk


def stopped_paused():
    desk = paused()
    end_sweep(desk)
    desk.happen(Requested(desk.time, "extend", changes={"trials.max": 20}))
    return desk


def failed_pending():
    desk = failed(at_desk())
    desk.happen(Requested(desk.time, "retry", "t0001"))
    return desk


def failed_paused():
    desk, order = undecided(PROMOTE, 1)
    desk.controller.apply(Failed(0.0, order.id, order.trial, "user", "no luck"))
    desk.happen(Requested(desk.time, "retry", "t0001"))
    return desk


def failed_completed():
    desk = at_desk()
    order = desk.start()
    desk.report(order, order.until, 1.0)
    desk.fail(order, "user")
    desk.happen(Requested(desk.time, "retry", "t0001"))
    return desk


def running_paused():
    return paused()


@pytest.mark.parametrize(("before", "after"), stories())
def test_each_transition_has_a_story(monkeypatch, before: TrialPhase, after: TrialPhase):
    seen = []

    def watch(trial: TrialState, name: str, value: object) -> None:
        if name == "state" and "state" in vars(trial):
            seen.append((trial.state, value))
        object.__setattr__(trial, name, value)

    monkeypatch.setattr(TrialState, "__setattr__", watch)
    desk = globals()[f"{before}_{after}".lower()]()
    assert seen[-1] == (before, after)
    assert desk.state.trials["t0001"].state == after


def test_a_table_needs_no_sweep_around_it():
    spec = make_spec()
    table = TrialTable(spec, CheckpointManager(spec.checkpoints))
    trial = TrialState("t0001", spec.objectives, {"lr": 0.1}, {}, 9, (), 0)
    table.add(trial)
    assert list(table.waiting) == list(table) == ["t0001"]
    table.order("t0001", replace(trial.next_order(1, 9, ()), workers=1), 0.0)
    assert (table.running(), table.by_order(1), table.by_order(2)) == ([trial], trial, None)
    table.report(Reported(1.0, 1, "t0001", 9, {"loss": 0.5}))
    table.end(Ended(2.0, 1, "t0001"))
    assert (trial.state, table.best(), table.rank_s_at(9.0)) == ("COMPLETED", ["t0001"], 2.0)
    assert [type(fact).__name__ for fact in table.new_facts] == ["Ordered", "Report", "Left"]
