"""Comparison of a trial with its rivals: the values that trials had reported up to a moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc.spec.metrics import Metric

SHOWN_BEST = 3  # rivals shown from the top, beside the trial's neighbours

Values = tuple[float, ...]  # one for each metric, as reported


@dataclass(frozen=True)
class TrialStanding:
    """A trial's rank among its rivals at a step."""

    trial: str
    step: int
    value: Values
    of: int  # number of trials, itself included
    better: int  # number of strictly better trials; with several metrics: of those dominating it
    rivals: tuple[tuple[str, int, Values], ...]  # (trial, step, values) of some, best first

    def data(self) -> dict[str, Any]:
        """Return the standing for the detail of an audit's line."""
        rivals = [
            {"trial": trial, "step": step, "value": _single_or_list(value)}
            for trial, step, value in self.rivals
        ]
        return {
            **{"step": self.step, "value": _single_or_list(self.value), "of": self.of},
            **{"better": self.better, "rivals": rivals},
        }


@dataclass
class Rivals:
    """The reports that count, by step, and each trial's last report at one of its milestones."""

    metrics: tuple[Metric, ...]
    reports: dict[int, dict[str, tuple[int, Values]]] = field(default_factory=dict)
    latest: dict[str, tuple[int, Values]] = field(default_factory=dict)

    def add(self, trial: str, step: int, metrics: Mapping[str, float], milestone: bool) -> None:
        """Add a report of a trial."""
        values = tuple(metrics.get(metric.name, math.nan) for metric in self.metrics)
        self.reports.setdefault(step, {})[trial] = (step, values)
        if milestone:
            self.latest[trial] = (step, values)

    def standing(self, trial: str, step: int, moving: bool) -> TrialStanding | None:
        """Return the standing of a trial at a step; None: it has not reported that step.

        Args:
            moving: True: compare it with all trials at their last milestones, as in a population;
                False: with the trials that have reported the same step.
        """
        others = self.latest if moving else self.reports.get(step, {})
        report = self.reports.get(step, {}).get(trial)
        if report is None:
            return None
        losses = {name: self._losses(value) for name, (_, value) in others.items()}
        losses[trial] = self._losses(report[1])
        order = sorted(losses, key=lambda name: (losses[name], name))
        rank = order.index(trial)
        shown = {*range(SHOWN_BEST), rank - 1, rank, rank + 1}
        rivals = [name for index, name in enumerate(order) if index in shown]
        return TrialStanding(
            trial=trial,
            step=step,
            value=report[1],
            of=len(order),
            better=sum(_beats(loss, losses[trial]) for loss in losses.values()),
            rivals=tuple((name, *(report if name == trial else others[name])) for name in rivals),
        )

    def _losses(self, values: Values) -> Values:
        """Return values signed so that lower is better; all infinite if any is not finite."""
        if not all(map(math.isfinite, values)):
            return (math.inf,) * len(values)
        return tuple(metric.loss(value) for metric, value in zip(self.metrics, values, strict=True))


def _beats(first: Values, second: Values) -> bool:
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def _single_or_list(values: Values) -> float | list[float]:
    return values[0] if len(values) == 1 else list(values)
