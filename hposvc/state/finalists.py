"""Results of several trainings: the mean, its interval, and comparisons.

They are those of the finalists, or of the seeds of each trial where the search trains with several.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import mean, stdev
from typing import Any

import scipy

from hposvc.estimate import Estimate
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import value_text
from searchers import Params

SEEDLESS = (
    "equal runs gave equal values, so the training has no randomness, or its seed does not reach "
    "it (`hposvc docs scripts`)"
)


@dataclass(frozen=True)
class FinalistResult:
    """The result of a finalist's replicates, or a trial's seeds, in the metric's unit."""

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
    def estimate(self) -> Estimate:
        """The mean with its interval, which is unknown if there is only one value."""
        runs = len(self.values)
        if runs == 1:
            return Estimate(self.mean)
        return Estimate.of_mean(self.mean, self.deviation / math.sqrt(runs), runs - 1)

    def data(self) -> dict[str, Any]:
        """Return the result as JSON; low and high are null if there is only one value."""
        runs = {"runs": len(self.values), "values": list(self.values), "set": dict(self.changed)}
        return {**self.estimate.data(), **runs}

    @property
    def of_what(self) -> str:
        """The changed values in words, ` with width 512`; empty: there are none."""
        words = [f"{name} {value_text(value)}" for name, value in self.changed.items()]
        return f" with {', '.join(words)}" if words else ""


def seed_result(trial: TrialState) -> FinalistResult | None:
    """Return the result of a trial's seeds; None: it has one, or it has several metrics."""
    if len(trial.runs) == 1 or len(trial.objectives) > 1:
        return None
    missing = (f"seed {seed.number + 1} {seed.end_reason[0]}" for seed in trial.failed_seeds)
    values = tuple(value for run in trial.runs for value in run.own_values)
    return FinalistResult(trial.id, values, tuple(missing)) if values else None


def seeds_text(trial: TrialState) -> str:
    """Return what stands behind a mean over seeds, ` ± 0.02 over 3 seeds`; empty: it is none."""
    runs = len(trial.runs)
    if runs == 1 or not trial.values:
        return ""
    result = seed_result(trial)
    width = "" if result is None else f" ± {result.estimate.half:.2g}"
    return f"{width} over {runs} seeds"


def repeated_results(state: SweepState) -> list[FinalistResult]:
    """Return the finalists, or else the trials with several seeds, the best first."""
    if state.replicates.finalists:
        return finalist_results(state)
    return [result for trial in state.ranked() if (result := seed_result(trial)) is not None]


def finalist_results(state: SweepState) -> list[FinalistResult]:
    """Return the finalists that have values, best mean first, those with one value last."""
    results = []
    for name in state.replicates.ranked():
        replicates, changed = state.replicates.finalists[name], state.replicates.changed
        missing = tuple(_missing(trial) for trial in replicates if trial.state != "COMPLETED")
        values = tuple(state.replicates.values(name))
        results.append(FinalistResult(name, values, missing, changed))
    return results


def _missing(replicate: TrialState) -> str:
    """Return why a replicate has no value."""
    if not replicate.over or replicate.ended_from is not None:
        return "not trained"
    stopped = replicate.state == "STOPPED" and replicate.reason == "user"
    return "stopped by the user" if stopped else replicate.reason


def of_best(state: SweepState) -> FinalistResult | None:
    """Return the result of the best finalist, or of the seeds of the best trial; None: neither."""
    if state.replicates.over and (results := finalist_results(state)):
        return results[0]
    return None if state.best is None else seed_result(state.trials[state.best])


def chance(one: FinalistResult, other: FinalistResult) -> float | None:
    """Return the two-sided p-value of Welch's test for a difference of means.

    None: a result has only one value.
    """
    if 1 in (len(one.values), len(other.values)):
        return None
    # In units of the largest value, because the square of a value may exceed a float.
    unit = max(map(abs, one.values + other.values)) or 1.0
    one, other = (
        replace(result, values=tuple(value / unit for value in result.values))
        for result in (one, other)
    )
    if one.deviation == other.deviation == 0:
        return 1.0 if one.mean == other.mean else 0.0
    samples = ((each.mean, each.deviation, len(each.values)) for each in (one, other))
    return float(scipy.stats.ttest_ind_from_stats(*chain(*samples), equal_var=False).pvalue)


def reasons(result: FinalistResult) -> str:
    """Return why replicates have no value, `2 diverged, 1 not trained`; empty: all have one."""
    return ", ".join(f"{count} {why}" for why, count in Counter(result.missing).items())
