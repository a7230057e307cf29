"""A sweep's state is a fold of its journal: the same from a file as it was in the driver."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import Flaky, at_desk, fold, make_controller, make_spec

from hposvc.controller.controller import Controller
from hposvc.events import Attached, Failed, Finished, Reported, from_json, to_json
from hposvc.state.ranking import Ranking

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}


def canonical(controller):
    """All that is known, in a form in which NaN equals itself."""
    state = controller.state
    hidden = {"spec", "checkpoints", "_facts", "_observed", "_changed"}
    known = {name: value for name, value in vars(state).items() if name not in hidden}
    known["lent"] = state.checkpoints.lent
    known["history"] = state.trials.history()
    known["next"] = controller.next()
    known["scheduler"] = controller.scheduler
    known["early_stopping"] = controller.early_stopping
    return repr(known)


class Remembering(Controller):
    def __post_init__(self):
        super().__post_init__()
        self.seen = []

    def apply(self, event):
        super().apply(event)
        self.seen.append(canonical(self))


SCHEDULERS = {
    "fifo": {"type": "fifo"},
    "stop": {"type": "asha", "mode": "stop"},
    "promote": {"type": "asha", "mode": "promote"},
    "median": {"type": "median", "min_trials": 2},
    "plateau": {"type": "asha", "plateau": {"patience": 2, "delta": 0.2}},
    "hyperband": {"type": "hyperband"},
    "pbt": {"type": "pbt", "interval": 2, "mutate": {"lr": {}}},
    "pb2": {"type": "pb2", "interval": 2, "mutate": {"lr": {}}},
    "fire": {"type": "fire", "interval": 2, "mutate": {"lr": {}}},
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_replay_gives_the_driver_s_state_after_every_event(lab, name):
    scheduler = SCHEDULERS[name]
    spec = make_spec(
        engine=TROUBLED,
        scheduler=scheduler,
        failure={"infra_retries": 50, "user_retries": 1},
        trials={"max": 16, "parallel": 4},
    )
    live = Remembering(spec, make_controller(spec).policy)
    lab.run(spec, backend=Flaky, controller=live)
    replayed = make_controller(spec)
    events = lab.events()
    assert len(events) == len(live.seen) > 100
    for event, seen in zip(events, live.seen, strict=True):
        replayed.apply(event)
        assert canonical(replayed) == seen


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5) | st.just(math.nan)), max_size=30),
    st.sampled_from(["last", "best", "mean_2"]),
    st.booleans(),
)
def test_the_best_trial_is_that_of_a_full_scan(reports, select, fails):
    desk = at_desk(
        metric={"name": "loss", "goal": "minimize", "select": select}, fidelity={"max": 100}
    )
    orders = [desk.start() for _ in range(4)]
    for slot, loss in reports:
        order = orders[slot]
        trial = desk.state.trials[order.trial]
        desk.report(order, trial.step + 1, loss)
        if fails and loss > 4 and trial.order is not None:
            desk.fail(order, "user")
        anew = Ranking.of(desk.state.trials).best()
        assert desk.state.best == next(iter(anew), None)
        assert all(trial.loss == math.inf for trial in desk.state.trials.values()) or anew


def test_a_trial_that_fails_is_no_longer_the_best():
    desk = at_desk()
    good, poor = desk.start(), desk.start()
    desk.report(good, 1, 0.1)
    desk.report(poor, 1, 0.7)
    desk.fail(good, "user")
    assert desk.state.best == poor.trial
    desk.fail(poor, "user")
    assert desk.state.best is None


def test_retries_are_counted_by_cause():
    desk = at_desk(failure={"infra_retries": 2, "user_retries": 1})
    order = desk.start()
    for cause in ["preempt"] * 5 + ["infra"] * 2 + ["user"]:
        desk.fail(order, cause)
        order = desk.start()
        assert order.trial == "t0001"
    trial = desk.state.trials["t0001"]
    assert trial.failures == {"preempt": 5, "infra": 2, "user": 1}
    desk.fail(order, "infra")
    assert (trial.state, trial.reason, trial.message) == ("FAILED", "infra", "infra it was")
    assert trial.order is None


def test_preemption_does_not_use_up_the_retries():
    """ray#41285."""
    desk = at_desk(failure={"infra_retries": 0})
    order = desk.start()
    for _ in range(100):
        desk.fail(order, "preempt")
        order = desk.start()
    desk.report(order, 9, 0.5)
    desk.end(order)
    assert desk.state.trials["t0001"].state == "COMPLETED"


def test_ranks_lost_after_the_last_report_lose_nothing():
    """A retry would have no step to run."""
    desk = at_desk()
    order = desk.start()
    for step in range(1, 10):
        desk.report(order, step, 1 / step)
    desk.fail(order, "infra")
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.value) == ("COMPLETED", 1 / 9)
    assert trial.failures == {}


def test_a_zombie_s_reports_and_checkpoints_do_not_count():
    desk = at_desk(checkpoints={"keep_last": 9})
    lost = desk.start()
    desk.report(lost, 1, 0.5)
    desk.happen(Attached(5.0, "here:2"))
    order = desk.start()
    assert (order.trial, order.first) == (lost.trial, 2)
    trial = desk.state.trials[order.trial]
    desk.report(order, 2, 0.4)
    assert desk.report(lost, 3, 0.01) == []
    assert desk.end(lost) == []
    assert desk.fail(lost, "user") == []
    assert trial.curve == [(1, 0.5), (2, 0.4)]
    assert trial.order is not None
    assert trial.order.id == order.id
    assert [saved.path for saved in desk.state.checkpoints.dropped] == ["t0001/1-3"]
    assert [saved.step for saved in trial.usable()] == [1, 2]


def test_a_repeat_counts_neither_in_the_curve_nor_in_a_rung():
    desk = at_desk(scheduler={"type": "asha", "eta": 3}, failure={"user_retries": 1})
    order = desk.start()
    [decided] = desk.report(order, 1, 0.5, save=False)
    assert (decided.verdict, decided.step) == ("continue", 1)
    desk.fail(order, "user")
    retry = desk.start()
    assert (retry.first, retry.milestones) == (1, (3,))
    assert desk.report(retry, 1, 0.1) == []
    assert desk.state.trials[order.trial].curve == [(1, 0.5)]
    # The rung has one loss, 0.5: a second trial of 0.6 is rank 2 of 2, of whom 1 goes on.
    other = desk.start()
    assert "rank 2 of 2" in desk.report(other, 1, 0.6)[0].detail


def test_time_counts_while_a_driver_is_at_work():
    spec = make_spec(resources={"gpus_per_worker": 2})
    desk = at_desk(resources={"gpus_per_worker": 2})
    desk.happen(Attached(1000.0, "here:1"))
    desk.time = 1010.0
    order = desk.start()
    desk.time = 1030.0
    desk.report(order, 1, 0.5)
    assert (desk.state.started, desk.state.elapsed_s) == (1000.0, 30.0)
    assert (desk.state.queued_s, desk.state.worked_s) == (10.0, 20.0)  # its first slot was late
    assert desk.state.gpu_hours == pytest.approx(20 * 2 / 3600)
    desk.happen(Attached(9000.0, "here:2"))  # nobody was there for two hours
    assert desk.state.elapsed_s == 30.0
    assert desk.state.trials[order.trial].seconds == 20.0
    assert fold(spec, desk.log).gpu_hours == desk.state.gpu_hours


@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.one_of(st.none(), st.floats(0, 1e3)), max_size=3),
            st.one_of(st.none(), st.floats(0, 1e3)),
            st.sampled_from(["infra", "preempt", ""]),
        ),
        max_size=6,
    )
)
def test_energy_adds_up_over_the_attempts_of_a_trial_and_so_do_its_reports(rows):
    """Of an attempt it is as the attempt last said; a driver that dies takes no energy away."""
    desk, step, total = at_desk(fidelity={"max": 99}, failure={"infra_retries": 99}), 0, 0.0
    spec = desk.state.spec
    desk.happen(Attached(0.0, "here:1"))
    for said, last, cause in rows:
        order = desk.start()
        most = 0.0
        for kwh in said:
            step += 1
            event = Reported(desk.time, order.id, order.trial, step, {"loss": 1.0}, {}, kwh)
            event = desk.state.with_energy(event)
            most = max(most, kwh or 0.0)
            assert ("energy_kwh" in event.metrics) == (kwh is not None)
            if kwh is not None:
                assert event.metrics["energy_kwh"] == pytest.approx(total + kwh)
            desk.happen(event)
        if cause:
            most = max(most, last or 0.0)
            failed = Failed(desk.time, order.id, order.trial, cause, "lost", energy_kwh=last)
            desk.happen(failed)
        else:
            desk.happen(Attached(desk.time, "here:2"))
        total += most
    told = [row for said, last, cause in rows for row in (*said, last if cause else None)]
    trials = [*desk.state.trials.values()]
    if all(kwh is None for kwh in told):
        assert desk.state.energy_kwh is None
    else:
        assert desk.state.energy_kwh == pytest.approx(total)
        assert sum(trial.energy_kwh or 0.0 for trial in trials) == pytest.approx(total)
    events = [from_json(event.kind, event.time, to_json(event)) for event in desk.log]
    assert fold(spec, events).energy_kwh == desk.state.energy_kwh


def test_the_end_leaves_no_trial_behind():
    desk = at_desk(scheduler={"type": "asha", "mode": "promote"})
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.end(order)
    desk.happen(Finished(0.0, "COMPLETED", "trials"))
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.reason) == ("STOPPED", "rung")
    assert desk.state.trials.counts["PAUSED"] == 0
