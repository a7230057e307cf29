"""With whom a trial was compared: the values that trials had reported up to a moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc.spec import Metric

BEST = 3  # rivals shown from the top; beside them the trial's neighbours

Values = tuple[float, ...]  # of each metric, as reported


@dataclass(frozen=True)
class Standing:
    """Where a trial stood."""

    trial: str
    step: int
    value: Values
    of: int  # trials, itself included
    better: int  # that were strictly better; of several metrics: that dominated it
    rivals: tuple[tuple[str, int, Values], ...]  # trial, its step, its values: some, best first

    def data(self) -> dict[str, Any]:
        """As a line's detail has it."""
        rivals = [
            {"trial": trial, "step": step, "value": _single(value)}
            for trial, step, value in self.rivals
        ]
        return {
            **{"step": self.step, "value": _single(self.value), "of": self.of},
            **{"better": self.better, "rivals": rivals},
        }


@dataclass
class Rivals:
    """All reports that count, by step; and the last one of each trial at a milestone of it."""

    metrics: tuple[Metric, ...]
    at: dict[int, dict[str, tuple[int, Values]]] = field(default_factory=dict)
    latest: dict[str, tuple[int, Values]] = field(default_factory=dict)

    def hear(self, trial: str, step: int, metrics: Mapping[str, float], milestone: bool) -> None:
        """A trial reported."""
        values = tuple(metrics.get(metric.name, math.nan) for metric in self.metrics)
        self.at.setdefault(step, {})[trial] = (step, values)
        if milestone:
            self.latest[trial] = (step, values)

    def standing(self, trial: str, step: int, moving: bool) -> Standing | None:
        """Where a trial stands now; None: it has not reported that step.

        Args:
            moving: whether the others stand at their own last milestones, as in a population,
                or are those that have reported the very step.
        """
        present = self.latest if moving else self.at.get(step, {})
        own = self.at.get(step, {}).get(trial)
        if own is None:
            return None
        losses = {name: self._losses(value) for name, (_, value) in present.items()}
        losses[trial] = self._losses(own[1])
        order = sorted(losses, key=lambda name: (losses[name], name))
        place = order.index(trial)
        shown = {*range(BEST), place - 1, place, place + 1}
        rivals = [name for at, name in enumerate(order) if at in shown]
        return Standing(
            trial=trial,
            step=step,
            value=own[1],
            of=len(order),
            better=sum(_beats(loss, losses[trial]) for loss in losses.values()),
            rivals=tuple((name, *(own if name == trial else present[name])) for name in rivals),
        )

    def _losses(self, values: Values) -> Values:
        """Lower is better; a trial with a value that is not finite is the worst in all."""
        if not all(map(math.isfinite, values)):
            return (math.inf,) * len(values)
        return tuple(metric.loss(value) for metric, value in zip(self.metrics, values, strict=True))


def _beats(one: Values, other: Values) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _single(values: Values) -> float | list[float]:
    return values[0] if len(values) == 1 else list(values)
