"""One trial: reports, selected values, milestones, checkpoints."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.spec.metrics import Metric
from hposvc.spec.sections import Checkpoints
from hposvc.state.checkpoints import prune
from hposvc.state.trial import TrialState
from trainables.order import Order
from trainables.storage.checkpoint import Saved

losses = st.floats(-1e6, 1e6)


def make_trial(goal="minimize", select="last", milestones=(), until=27):
    metric = Metric("loss", goal, select)
    return TrialState("t0001", (metric,), {"lr": 0.1}, {}, until, milestones, number=0)


def save(trial, step, order=1):
    saved = Saved(step, f"{order}-{step}", "", 0)
    trial.checkpoints.append(saved)
    return saved


def test_the_first_report_of_a_step_stands():
    trial = make_trial()
    assert trial.report(1, {"loss": 0.5})
    assert not trial.report(1, {"loss": 0.1})
    assert trial.curve == [(1, 0.5)]
    assert trial.metrics == {"loss": 0.5}


def test_a_retry_that_reports_other_steps_than_before_does_not_go_back():
    """Each curve grows by step, so that `last` is the furthest result."""
    trial = make_trial()
    trial.report(4, {"loss": 0.4})
    assert not trial.report(3, {"loss": 0.9})
    assert trial.report(5, {"loss": 0.3})
    assert trial.curve == [(4, 0.4), (5, 0.3)]
    assert trial.value == 0.3


@settings(max_examples=100, deadline=None)
@given(
    st.lists(losses, min_size=1, max_size=12),
    st.sampled_from(["last", "best", "mean_1", "mean_3", "mean_20"]),
    st.sampled_from(["minimize", "maximize"]),
)
def test_the_value_is_the_one_selected(curve, select, goal):
    trial = make_trial(goal, select)
    for step, value in enumerate(curve, 1):
        trial.report(step, {"loss": value, "step": step})
    best = min(curve) if goal == "minimize" else max(curve)
    window = 1 if select == "last" else int(select.removeprefix("mean_").replace("best", "1"))
    mean = sum(curve[-window:]) / len(curve[-window:])
    assert trial.value == pytest.approx(best if select == "best" else mean)
    assert trial.loss == (trial.value if goal == "minimize" else -trial.value)
    step, metrics = trial.selected
    assert metrics["step"] == step == (curve.index(best) + 1 if select == "best" else len(curve))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("select", ["last", "best", "mean_2"])
def test_a_value_that_is_not_finite_means_that_the_trial_diverged(value, select):
    trial = make_trial(select=select)
    trial.report(1, {"loss": 0.5})
    trial.report(2, {"loss": value})
    assert trial.diverged
    assert trial.value is None
    assert trial.selected is None
    assert trial.losses == trial.last_losses == (math.inf,)


def test_a_report_without_the_metric_is_kept_and_not_judged():
    trial = make_trial()
    trial.report(1, {"accuracy": 0.5})
    assert (trial.reached, trial.step, trial.diverged) == (1, 0, False)
    assert trial.unjudged == {1: {"accuracy": 0.5}}
    trial.report(2, {"loss": 0.25})
    trial.report(3, {"accuracy": 0.75})
    assert (trial.reached, trial.step, trial.value) == (3, 2, 0.25)
    assert trial.selected == (2, {"loss": 0.25})


def test_a_checkpoint_counts_once_its_step_is_reported():
    trial = make_trial()
    saved = save(trial, 2)
    trial.report(1, {"loss": 0.5})
    assert trial.usable() == []
    assert trial.next_order(7, 9, ()).first == 1
    trial.report(2, {"loss": 0.4})
    assert trial.usable() == [saved]
    order = trial.next_order(7, 9, (1, 3))
    assert (order.start, order.first, order.until) == (saved, 3, 9)
    assert trial.checkpoint_at(2) == saved
    assert trial.checkpoint_at(1) is None


def test_pruning_keeps_the_last_the_best_and_the_one_in_use():
    trial = make_trial()
    for step, loss in enumerate([0.5, 0.1, 0.4, 0.3, 0.6], 1):
        save(trial, step)
        trial.report(step, {"loss": loss})
    trial.order = Order(2, trial.id, trial.params, trial.checkpoints[2], 4, 9)
    dropped = prune(trial, Checkpoints(keep_last=1, keep_best=1), lent=())
    assert [saved.step for saved in dropped] == [1, 4]
    assert [saved.step for saved in trial.checkpoints] == [2, 3, 5]


def test_pruning_leaves_a_checkpoint_whose_step_is_not_reported_yet():
    trial = make_trial()
    trial.report(1, {"loss": 0.5})
    save(trial, 1)
    save(trial, 2)
    assert prune(trial, Checkpoints(keep_last=1, keep_best=0), lent=()) == []


def test_a_searcher_sees_losses_and_no_failed_value():
    trial = make_trial("maximize")
    trial.report(1, {"loss": 0.5})
    seen = trial.observation()
    assert (seen.loss, seen.curve, seen.state) == (-0.5, ((1, -0.5),), "pending")
    trial.state = "PAUSED"
    assert trial.observation().state == "done"
    trial.state, trial.reason = "FAILED", "user"
    seen = trial.observation()
    assert (seen.loss, seen.state, seen.reason) == (None, "failed", "user")
