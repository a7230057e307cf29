"""Memory of a spec's training: forecast for each strategy, and measured for its own."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hposvc.errors import fail
from hposvc.spec import SweepSpec
from searchers.searcher import call_rng
from searchers.space import Params
from trainables import load
from trainables.data import Data
from trainables.memory_estimation.forecast import (
    CannotForecast,
    Forecast,
    Variant,
    adapted_to_ranks,
    make_forecast,
    variants,
)
from trainables.memory_estimation.measuring import Trial, measure
from trainables.task import Task
from trainables.training import Training


@dataclass(frozen=True)
class Case:
    """A configuration of a spec, ready to be trained."""

    task: Task
    training: Training
    params: Params
    ranks: int

    @classmethod
    def of(cls, spec: SweepSpec, ranks: int | None = None) -> "Case":
        """Return the case of the spec's first initial configuration, else the middle of its space.

        Missing parameters of an initial configuration are drawn as in a run.

        Args:
            ranks: None: the spec's workers.

        Raises:
            SpecError: the spec does not train a Task; only a Task's model is known in advance.
        """
        if spec.initial:
            params = spec.space.complete(spec.initial[0], call_rng(spec.seed, 0))
        else:
            params = spec.space.decode(np.full(len(spec.space.searched), 0.5))
        training = load.training_of(spec.training, params)
        if ranks is None:
            return cls(task_of(spec, params), training, params, spec.resources.ranks)
        return cls(task_of(spec, params), adapted_to_ranks(training, ranks), params, ranks)


def in_trial_folder(spec: SweepSpec) -> AbstractContextManager[None]:
    """Return a context that works in the trials' working directory, if it is on this machine."""
    folder = Path(spec.works_in or "")
    return chdir(folder) if folder.is_dir() else nullcontext()


def task_of(spec: SweepSpec, params: Params) -> Task:
    """Return the Task of a spec with these parameters.

    Raises:
        SpecError: the spec does not train a Task.
    """
    task_params = {
        name: value for name, value in params.items() if not name.startswith(load.TRAINING)
    }
    cls = None if spec.trainable is None else load.resolve(spec.trainable)
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        message = f"is {spec.runnable}; what it costs is known of a Task only (docs/training.md)"
        raise fail(message, "trainable")
    return cls(**task_params)  # type: ignore[arg-type]  # checked when the spec was


@dataclass(frozen=True)
class StrategyForecast:
    """A strategy with its forecast, or with the reason why there is none."""

    variant: Variant
    forecast: Forecast | None
    refusal: str = ""

    def plain(self, memory: int | None) -> dict[str, Any]:
        """Return the row for JSON; `fits` is null if no GPU is known or there is no forecast."""
        forecast = self.forecast
        return {
            "strategy": self.variant.name,
            "workers": self.variant.ranks,
            "chosen": self.variant.chosen,
            **({} if forecast is None else asdict(forecast)),
            "fits": None if forecast is None or memory is None else forecast.fits(memory),
            "refused": self.refusal or None,
        }


def forecasts(case: Case, gpu: bool) -> list[StrategyForecast]:
    """Return the forecast of every strategy on the case's ranks, with its own strategy marked.

    Args:
        gpu: forecast the memory of GPUs, else that of processes without a GPU.
    """
    data, strategies = case.task.load_data(), variants(case.training, case.ranks)
    return [_row(case.task, data, strategy, gpu) for strategy in strategies]


def check(rows: Sequence[StrategyForecast]) -> None:
    """Check that at least one strategy has a forecast.

    Raises:
        CannotForecast: the task does something that cannot be forecast under any strategy.
    """
    if all(row.forecast is None for row in rows):
        raise CannotForecast(rows[0].refusal)


def measured(case: Case, gpu: bool) -> int:
    """Return the bytes used by the fullest rank in two real updates, under the case's own strategy.

    Raises:
        MeasurementFailed: the updates broke off.
    """
    return measure(Trial(case.task, case.training, case.ranks, gpu))


def _row(task: Task, data: Data, variant: Variant, gpu: bool) -> StrategyForecast:
    try:
        return StrategyForecast(variant, make_forecast(task, data, variant, gpu))
    except ValueError as error:
        return StrategyForecast(variant, None, str(error))


def report(
    case: Case, rows: list[StrategyForecast], memory: int | None, taken: int | None
) -> Mapping[str, Any]:
    """Return the output of `hposvc memory -o json`; `measured` is null if nothing was measured."""
    return {
        "configuration": dict(case.params),
        "gpu_memory": memory,
        "measured": taken,
        "strategies": [row.plain(memory) for row in rows],
    }
