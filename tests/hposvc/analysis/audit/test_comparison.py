"""Ranks of a trial among its rivals, as an audit states them."""

import math

from hposvc.analysis.audit.comparison import Rivals
from hposvc.spec.metrics import Metric

LOSS = (Metric("loss", "minimize"),)
BOTH = (*LOSS, Metric("speed", "maximize"))


def rivals(metrics, step, **values):
    """Return the rivals that reported these values at a step."""
    seen = Rivals(metrics)
    for trial, value in values.items():
        pairs = value if isinstance(value, tuple) else (value,)
        names = [metric.name for metric in metrics]
        seen.add(trial, step, dict(zip(names, pairs, strict=True)), milestone=True)
    return seen


def test_a_rank_counts_the_strictly_better_and_shows_the_best_and_the_neighbours():
    seen = rivals(LOSS, 3, **{f"t{k}": float(k) for k in range(9)})
    standing = seen.standing("t6", 3, moving=False)
    assert (standing.of, standing.better, standing.value) == (9, 6, (6.0,))
    assert [name for name, _, _ in standing.rivals] == ["t0", "t1", "t2", "t5", "t6", "t7"]


def test_a_value_that_is_not_finite_is_the_worst():
    standing = rivals(LOSS, 1, a=math.nan, b=5.0, c=-math.inf).standing("a", 1, moving=False)
    assert standing.better == 1  # minus infinity is no result either


def test_with_several_metrics_only_dominating_trials_are_better():
    seen = rivals(BOTH, 1, a=(1.0, 5.0), b=(2.0, 9.0), c=(3.0, 4.0))
    assert [seen.standing(name, 1, moving=False).better for name in "abc"] == [0, 0, 2]


def test_members_of_a_population_are_compared_at_their_last_milestones():
    seen = rivals(LOSS, 1, a=1.0)
    seen.add("b", 4, {"loss": 0.5}, milestone=True)
    seen.add("b", 5, {"loss": 9.0}, milestone=False)
    assert seen.standing("a", 1, moving=True).better == 1
    assert seen.standing("a", 1, moving=False).of == 1
