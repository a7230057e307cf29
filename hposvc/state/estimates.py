"""Estimates of the finalists: the mean of their replicates, its interval, and comparisons.

Source: for the interval of a mean, Student, The probable error of a mean, Biometrika 6 (1908); for
the difference of two means with unequal variances, Welch, The generalization of "Student's" problem
when several different population variances are involved, Biometrika 34 (1947).
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from statistics import mean, stdev
from typing import Any

from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import value_text
from searchers.values import Params

SEEDLESS = (
    "equal runs gave equal values, so the training has no randomness, or its seed does not reach "
    "it (`hposvc docs scripts`)"
)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """The result of a finalist's replicates, in the metric's unit."""

    trial: str
    values: tuple[float, ...]  # of the completed replicates; at least one
    missing: tuple[str, ...] = ()  # why each of the others has no value
    changed: Params = field(default_factory=dict)  # values of replicates that are not the trial's

    @property
    def mean(self) -> float:
        """Mean of the replicates' values."""
        return mean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of a value; 0 if there is only one, inf if it exceeds a float."""
        try:
            return stdev(self.values) if len(self.values) > 1 else 0.0
        except OverflowError:
            return math.inf

    @property
    def half(self) -> float | None:
        """Half the width of the mean's confidence interval; None: there is only one value."""
        from scipy.special import stdtrit  # takes 0.3 s, which the status of most sweeps saves

        runs = len(self.values)
        if runs == 1:
            return None
        return float(stdtrit(runs - 1, (1 + CONFIDENCE) / 2)) * self.deviation / math.sqrt(runs)

    def data(self) -> dict[str, Any]:
        """Return the estimate as JSON; low and high are null if there is only one value."""
        mean, half = self.mean, self.half
        return {
            "mean": mean,
            "low": None if half is None else mean - half,
            "high": None if half is None else mean + half,
            "confidence": CONFIDENCE,
            "runs": len(self.values),
            "values": list(self.values),
            "set": dict(self.changed),
        }

    @property
    def of_what(self) -> str:
        """The changed values in words, ` with width 512`; empty: there are none."""
        words = [f"{name} {value_text(value)}" for name, value in self.changed.items()]
        return f" with {', '.join(words)}" if words else ""


def estimates(state: SweepState) -> list[Estimate]:
    """Return the finalists that have values, best mean first, those with one value last."""
    metric = state.spec.objectives[0]
    with_values = []
    for name, replicates in state.replicates.finalists.items():
        values = state.replicates.values(name)
        missing = (_missing(trial) for trial in replicates if trial.state != "COMPLETED")
        if values:
            changed = state.replicates.changed
            with_values.append(Estimate(name, tuple(values), tuple(missing), changed))
    return sorted(
        with_values,
        key=lambda estimate: (len(estimate.values) == 1, metric.loss(estimate.mean)),
    )


def _missing(replicate: TrialState) -> str:
    """Return why a replicate has no value."""
    if not replicate.over or replicate.ended_from is not None:
        return "not trained"
    stopped = replicate.state == "STOPPED" and replicate.reason == "user"
    return "stopped by the user" if stopped else replicate.reason


def of_best(state: SweepState) -> Estimate | None:
    """Return the best finalist's estimate once the replicates are over; None: there are none."""
    champion = state.replicates.champion
    return next((estimate for estimate in estimates(state) if estimate.trial == champion), None)


def chance(one: Estimate, other: Estimate) -> float | None:
    """Return the two-sided p-value of Welch's test for a difference of means.

    None: an estimate has only one value.
    """
    from scipy.special import stdtr

    runs = [len(estimate.values) for estimate in (one, other)]
    if 1 in runs:
        return None
    # In units of the largest value, because the square of a value may exceed a float.
    unit = max(map(abs, one.values + other.values)) or 1.0
    one, other = (
        replace(estimate, values=tuple(value / unit for value in estimate.values))
        for estimate in (one, other)
    )
    # The variance of each mean.
    shares = [estimate.deviation**2 / n for estimate, n in zip((one, other), runs, strict=True)]
    apart, total = abs(one.mean - other.mean), sum(shares)
    if total == 0:
        return 1.0 if apart == 0 else 0.0
    freedom = total**2 / sum(share**2 / (n - 1) for share, n in zip(shares, runs, strict=True))
    return 2 * float(stdtr(freedom, -apart / math.sqrt(total)))


def reasons(estimate: Estimate) -> str:
    """Return why replicates have no value, `2 diverged, 1 not trained`; empty: all have one."""
    return ", ".join(f"{count} {why}" for why, count in Counter(estimate.missing).items())
