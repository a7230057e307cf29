"""How good the finalists are: the mean of their repeats, how sure it is, and who is the best.

Source: the interval of a mean is Student, The probable error of a mean, Biometrika 6 (1908).
Whether two means differ, where deviations may too, is Welch, The generalization of "Student's"
problem when several different population variances are involved, Biometrika 34 (1947).
"""

import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from hposvc.state import SweepState

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """What a finalist came to, in the metric's unit."""

    trial: str
    values: tuple[float, ...]  # of the repeats that came to their end; at least one
    missing: tuple[str, ...] = ()  # why each of the others did not

    @property
    def mean(self) -> float:
        """Of the values."""
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of a value; 0 where there is only one."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def half(self) -> float | None:
        """Half the width of the mean's interval of confidence; None: there is only one value."""
        from scipy.special import stdtrit  # 0.3 s, which the status of most sweeps is spared

        runs = len(self.values)
        if runs == 1:
            return None
        return float(stdtrit(runs - 1, (1 + CONFIDENCE) / 2)) * self.deviation / math.sqrt(runs)

    def data(self) -> dict[str, Any]:
        """The estimate as JSON has it; low and high are null where there is only one value."""
        mean, half = self.mean, self.half
        return {
            "mean": mean,
            "low": None if half is None else mean - half,
            "high": None if half is None else mean + half,
            "confidence": CONFIDENCE,
            "runs": len(self.values),
            "values": list(self.values),
        }


def estimates(state: SweepState) -> list[Estimate]:
    """The finalists that have values, the best mean first; those with a single value come last."""
    finals, metric = state.finals, state.spec.objectives[0]
    found = []
    for name, repeats in finals.repeats.items():
        values = finals.values(name)
        missing = (repeat.reason or "not trained" for repeat in repeats if repeat.value is None)
        if values:
            found.append(Estimate(name, tuple(values), tuple(missing)))
    return sorted(found, key=lambda one: (len(one.values) == 1, metric.loss(one.mean)))


def of_best(state: SweepState) -> Estimate | None:
    """The best finalist's, once the finals are over; None where there were none."""
    found = (one for one in estimates(state) if one.trial == state.finals.champion)
    return next(found, None)


def chance(one: Estimate, other: Estimate) -> float | None:
    """How probable so great a difference of means is among equals: Welch's test, two-sided.

    None: one of them has a single value.
    """
    from scipy.special import stdtr

    runs = [len(each.values) for each in (one, other)]
    if 1 in runs:
        return None
    # The variance of each mean.
    shares = [each.deviation**2 / n for each, n in zip((one, other), runs, strict=True)]
    apart, total = abs(one.mean - other.mean), sum(shares)
    if total == 0:
        return 1.0 if apart == 0 else 0.0
    freedom = total**2 / sum(share**2 / (n - 1) for share, n in zip(shares, runs, strict=True))
    return 2 * float(stdtr(freedom, -apart / math.sqrt(total)))


def reasons(estimate: Estimate) -> str:
    """`2 diverged, 1 not trained`: why repeats have no value; empty where all have one."""
    return ", ".join(f"{count} {why}" for why, count in Counter(estimate.missing).items())
