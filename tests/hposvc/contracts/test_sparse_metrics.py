"""Sweeps whose metric comes in some reports only, as where each second epoch is validated.

If these tests fail, such a sweep ends at its first report, loses its training curves, or compares
trials at steps for which they have no value.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import SCHEDULERS, Flaky, Lab, fold, make_spec, smooth

from hposvc.events import Decided
from hposvc.journal.journal import SweepRow
from hposvc.tracking.projection import Projection
from searchers.searcher import Observation

SCHEDULERS_OR_PLATEAU = {
    **SCHEDULERS,
    "plateau": {"type": "fifo", "plateau": {"patience": 2}},
}


def second(params, step):
    """Validate at every second step."""
    return sometimes(params, step, 2)


def third(params, step):
    """Validate at every third step."""
    return sometimes(params, step, 3)


def sometimes(params, step, every):
    metrics, seconds = smooth(params, step)
    return {"train": 1 / step, **(metrics if step % every == 0 else {})}, seconds


def never(params, step):
    return {"train_loss": 1 / step}, 1.0


def sparse(curve="second", first=3, **sections):
    engine = {"type": "simulate", "curve": f"{__name__}:{curve}"}
    return make_spec(engine=engine, fidelity={"min": first, "max": 9}, **sections)


def judged(events):
    """Return the steps at which trials were judged, by the reason of the decision."""
    found = {}
    for event in events:
        if isinstance(event, Decided) and not event.whole:
            found.setdefault(event.reason, set()).add(event.step)
    return found


@pytest.mark.parametrize("name", SCHEDULERS_OR_PLATEAU)
@pytest.mark.parametrize("curve", ["second", "third"])
def test_the_sweep_goes_on_and_has_a_value_at_the_steps_with_one(lab, name, curve):
    spec = sparse(curve, scheduler=SCHEDULERS_OR_PLATEAU[name])
    state = lab.run(spec)
    check(spec, lab.events())
    assert (state.state, state.reason) == ("COMPLETED", "trials")
    assert state.trials.counts.get("FAILED", 0) == 0
    every = {"second": 2, "third": 3}[curve]
    for trial in state.trials.values():
        assert [step for step, _ in trial.curve] == [*range(every, trial.reached + 1, every)]
        assert trial.unjudged.keys() | trial.steps.keys() == {*range(1, trial.reached + 1)}
        assert all(set(metrics) == {"train"} for metrics in trial.unjudged.values())
    assert math.isfinite(state.trials[state.best].loss)
    assert state.trials.counts["COMPLETED"] >= 1


def test_a_rung_without_the_metric_waits_for_the_next_step_that_has_it(lab):
    state = lab.run(sparse(scheduler={"type": "asha"}))
    reasons = judged(lab.events())
    assert reasons["rung"] == {3}  # told for the rung at step 3 ...
    stopped = [trial for trial in state.trials.values() if trial.reason == "rung"]
    assert stopped
    assert {trial.step for trial in stopped} == {4}  # ... by the value of step 4


@pytest.mark.parametrize("name", SCHEDULERS_OR_PLATEAU)
def test_lost_orders_of_such_trials_go_on_as_others_do(lab, name):
    spec = sparse(scheduler=SCHEDULERS_OR_PLATEAU[name], seed=3)
    state = lab.run(spec, backend=Flaky)
    check(spec, lab.events())
    assert state.state == "COMPLETED"
    for trial in state.trials.values():
        assert [step for step, _ in trial.curve] == [*range(2, trial.reached + 1, 2)]


@pytest.mark.parametrize("name", SCHEDULERS_OR_PLATEAU)
def test_a_sweep_without_the_metric_fails_and_names_what_was_reported(lab, name):
    spec = sparse("never", scheduler=SCHEDULERS_OR_PLATEAU[name])
    state = lab.run(spec)
    check(spec, lab.events())
    assert state.state == "FAILED"
    assert (
        "reports has the sweep's metric 'loss'; the nearest reported is 'train_loss'"
        in state.reason
    )
    assert len(state.trials) <= 4  # no more than ran at once
    assert "FAILED" in {trial.state for trial in state.trials.values()}


def test_training_curves_reach_the_trackers_and_no_objective_is_made_up(lab):
    spec = sparse(trials={"max": 1})
    lab.run(spec)
    projection = Projection(SweepRow("s", "s", "p", 0.0, {}, {}), spec)
    for event in lab.events():
        projection.apply(event)
    points = projection.take_entries()["t0001"].points
    assert [point.step for point in points if point.name == "train"] == [*range(1, 10)]
    assert [point.step for point in points if point.name == "loss"] == [2, 4, 6, 8]
    assert {point.step for point in points if point.name == "objective"} == {2, 4, 6, 8}


def test_a_searcher_sees_the_steps_with_a_value_alone(lab):
    state = lab.run(sparse(trials={"max": 1}))
    (seen,) = state.trials.history()
    assert isinstance(seen, Observation)
    assert [step for step, _ in seen.curve] == [2, 4, 6, 8]
    assert (seen.state, seen.loss) == ("done", state.trials["t0001"].value)


@pytest.mark.full
@given(
    has=st.lists(st.sets(st.integers(1, 9), min_size=1), min_size=4, max_size=4),
    scheduler=st.sampled_from(sorted(SCHEDULERS_OR_PLATEAU)),
)
@settings(max_examples=60, deadline=None)
def test_wherever_the_metric_comes_nothing_is_judged_without_it(has, scheduler, tmp_path_factory):
    STEPS[:] = has
    folder = tmp_path_factory.mktemp("sparse")
    lab = Lab.at(folder)
    spec = sparse(
        "chosen", scheduler=SCHEDULERS_OR_PLATEAU[scheduler], trials={"max": 8, "parallel": 3}
    )
    state = lab.run(spec)
    events = lab.events()
    check(spec, events)
    for trial in state.trials.values():
        wanted = has[int(trial.params["lr"] * 1e9) % 4]
        if scheduler != "pbt":  # whose trials change lr
            assert {step for step, _ in trial.curve} <= wanted
        if trial.state == "COMPLETED":
            assert trial.curve
    assert fold(spec, events).state == state.state


STEPS = []  # steps with the metric, of trials by the last digits of lr


def chosen(params, step):
    wanted = STEPS[int(params["lr"] * 1e9) % 4]
    metrics, seconds = smooth(params, step)
    return {"train": 1 / step, **(metrics if step in wanted else {})}, seconds
