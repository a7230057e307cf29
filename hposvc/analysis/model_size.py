"""Model and data sizes of a sweep's trials, the points that scaling laws are fitted to."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hposvc.analysis.memory import in_trial_folder, task_of
from hposvc.analysis.scaling_law import Fit, ScalePoint, TooFew, fit
from hposvc.errors import fail
from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.open_sweep import OpenSweep
from hposvc.spec import SweepSpec
from hposvc.state.answers import Trial, values_of
from trainables import Task
from trainables.contract import Length
from trainables.memory_estimation import meta_model


@dataclass(frozen=True)
class Names:
    """Names of the metrics or parameters with a trial's sizes; None: computed from its Task."""

    weights: str | None = None
    samples: str | None = None


@dataclass(frozen=True)
class BestUse:
    """The best use of a budget of compute."""

    flops: float
    weights: Estimate
    samples: Estimate

    def data(self) -> dict[str, Any]:
        """Return the use as JSON."""
        return {
            "flops": self.flops,
            "weights": self.weights.value,
            "samples": self.samples.value,
            "weights_interval": [self.weights.low, self.weights.high],
            "samples_interval": [self.samples.low, self.samples.high],
        }


@dataclass(frozen=True)
class SweepLaw:
    """The scaling law of a sweep's trials, and the best use of a budget."""

    sweep: str
    fit: Fit
    budget: BestUse | None  # None: no budget was given

    def data(self) -> dict[str, Any]:
        """Return the output of `hposvc laws -o json`."""
        return {
            "sweep": self.sweep,
            "law": asdict(self.fit.law),
            "intervals": {
                name: [each.low, each.high] for name, each in self.fit.coefficients.items()
            },
            "confidence": CONFIDENCE,
            "points": [asdict(point) for point in self.fit.points],
            "budget": None if self.budget is None else self.budget.data(),
        }


def law_of(sweep: OpenSweep, names: Names, budget: float | None = None) -> SweepLaw:
    """Fit a scaling law to a sweep's trials.

    Args:
        budget: FLOPs to be spent best.

    Raises:
        SpecError: no law can be fitted to the trials, or none that tells how to spend a budget.
    """
    record = sweep.record()
    try:
        with in_trial_folder(record.state.spec):
            trial_points = points(record.state.spec, record.trials(), names)
        law = fit(trial_points)
        best = None
        if budget is not None:
            best = BestUse(budget, *law.optimum(budget))
    except ValueError as error:
        raise fail(f"{record.row.id}: {error}") from error
    return SweepLaw(record.row.id, law, best)


def points(spec: SweepSpec, trials: Sequence[Trial], names: Names) -> list[ScalePoint]:
    """Return a point for each completed trial with a loss.

    Args:
        trials: the rows of `hposvc trials -o json`.

    Raises:
        TooFew: the sweep does not minimize one loss, or a trial has no value of a named size.
        SpecError: sizes must be computed, and the trainable is not a Task.
    """
    if spec.metric is None or spec.metric.goal == "maximize":
        metrics = "several metrics" if spec.metric is None else f"{spec.metric.name}, maximized"
        raise TooFew(f"the sweep has {metrics}; a scaling law is of one loss that is minimized")
    return [
        ScalePoint(*_sizes(spec, names, trial), value)
        for trial in trials
        if trial.state == "COMPLETED"
        for value in values_of(trial.value)
        if value is not None
    ]


def _sizes(spec: SweepSpec, names: Names, trial: Trial) -> tuple[float, float]:
    """Return the number of weights, and of trained elements of the loss (tokens, samples)."""
    weights, samples = (
        None if name is None else _named_size(trial, name)
        for name in (names.weights, names.samples)
    )
    if weights is None or samples is None:
        task = task_of(spec, trial.params)
        if weights is None:
            weights = meta_model.count_weights(task)
        if samples is None:
            samples = _trained_elements(spec, task, trial.step)
    return float(weights), float(samples)


def _trained_elements(spec: SweepSpec, task: Task, steps: int) -> float:
    """Return how many elements of the loss a trial has trained on in so many steps."""
    length = Length(spec.unit, steps, task.batch, *task.load_data().epoch(task.batch))
    if length.counts_tokens:
        return steps
    return length.samples(length.updates(steps)) * meta_model.losses_per_sample(task)


def _named_size(trial: Trial, name: str) -> float:
    values = {**trial.params, **trial.metrics}
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise TooFew(
            f"trial {trial.trial} says no number above 0 under {name!r}; "
            f"it has {', '.join(sorted(values))}"
        )
    return value
