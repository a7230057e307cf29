"""How many weights a sweep's trials have, and from how much data they learned, for scaling laws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hposvc.costing import task_of
from hposvc.laws import Point, TooFew
from hposvc.spec import SweepSpec
from trainables.forecasting import outline
from trainables.task import Task


@dataclass(frozen=True)
class Names:
    """Under which metric or parameter a trial says its sizes; None: they are worked out."""

    weights: str | None = None
    samples: str | None = None


def points(spec: SweepSpec, trials: Sequence[Mapping[str, Any]], names: Names) -> list[Point]:
    """A point for each trial that came to its end with a loss.

    Args:
        trials: as `hposvc trials -o json` has them.

    Raises:
        TooFew: the sweep has no loss to be minimized, or a trial does not say a size.
        SpecError: sizes are to be worked out of something other than a Task.
    """
    if spec.metric is None or spec.metric.goal == "maximize":
        said = "several metrics" if spec.metric is None else f"{spec.metric.name}, maximized"
        raise TooFew(f"the sweep has {said}; a scaling law is of one loss that is minimized")
    ended = [each for each in trials if each["state"] == "COMPLETED" and each["value"] is not None]
    sizes = Sizes(spec, names)
    return [Point(*sizes.of(trial), float(trial["value"])) for trial in ended]


@dataclass(frozen=True)
class Sizes:
    """Finds the sizes of trials."""

    spec: SweepSpec
    names: Names

    def of(self, trial: Mapping[str, Any]) -> tuple[float, float]:
        """Weights, and elements of the loss that they learned from (tokens, samples)."""
        said = [
            None if name is None else self._said(trial, name)
            for name in (self.names.weights, self.names.samples)
        ]
        if None not in said:
            return float(said[0] or 0), float(said[1] or 0)
        task = task_of(self.spec, trial["params"])
        weights = outline.count(task) if said[0] is None else said[0]
        samples = self._learned(task) * trial["step"] if said[1] is None else said[1]
        return float(weights), float(samples)

    def _said(self, trial: Mapping[str, Any], name: str) -> float:
        known = {**trial["params"], **trial["metrics"]}
        value = known.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise TooFew(
                f"trial {trial['trial']} says no number above 0 under {name!r}; "
                f"it has {', '.join(sorted(known))}"
            )
        return value

    def _learned(self, task: Task) -> int:
        """Elements of a step."""
        return len(task.load_data().train) * outline.elements(task)
