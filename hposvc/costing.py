"""What a spec's training takes of memory: forecast for each strategy, and measured for its own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hposvc.reading.problems import fail
from hposvc.spec import SweepSpec
from searchers.searcher import call_rng
from searchers.space import Params
from trainables import load
from trainables.data import Data
from trainables.forecasting.forecast import (
    Forecast,
    NotForeseen,
    Variant,
    fitted,
    foresee,
    variants,
)
from trainables.forecasting.measuring import Trial, measure
from trainables.task import Task
from trainables.training import Training


@dataclass(frozen=True)
class Case:
    """One configuration of a spec, ready to be trained."""

    task: Task
    training: Training
    params: Params
    ranks: int

    @classmethod
    def of(cls, spec: SweepSpec, ranks: int | None = None) -> "Case":
        """The first initial configuration, what is missing drawn as a run does; else the middle.

        Args:
            ranks: None: the spec's workers.

        Raises:
            SpecError: the spec trains no Task, whose model is known before it is trained.
        """
        if spec.initial:
            params = spec.space.complete(spec.initial[0], call_rng(spec.seed, 0))
        else:
            params = spec.space.decode(np.full(len(spec.space.searched), 0.5))
        training = load.training_of(spec.training, params)
        if ranks is None:
            return cls(task_of(spec, params), training, params, spec.resources.ranks)
        return cls(task_of(spec, params), fitted(training, ranks), params, ranks)


def task_of(spec: SweepSpec, params: Params) -> Task:
    """The Task that a spec trains, with these values.

    Raises:
        SpecError: it trains something else.
    """
    own = {name: value for name, value in params.items() if not name.startswith(load.TRAINING)}
    kind = None if spec.trainable is None else load.resolve(spec.trainable)
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        message = f"is {spec.runs}; what it costs is known of a Task only (docs/training.md)"
        raise fail(message, "trainable")
    return kind(**own)  # type: ignore[arg-type]  # checked when the spec was


@dataclass(frozen=True)
class Row:
    """A strategy, and its forecast; or why there is none."""

    variant: Variant
    forecast: Forecast | None
    refusal: str = ""

    def plain(self, memory: int | None) -> dict[str, Any]:
        """As JSON has it; `fits` is null where no GPU is known, or nothing was forecast."""
        found = self.forecast
        return {
            "strategy": self.variant.name,
            "workers": self.variant.ranks,
            "chosen": self.variant.chosen,
            **({} if found is None else asdict(found)),
            "fits": None if found is None or memory is None else found.fits(memory),
            "refused": self.refusal or None,
        }


def forecasts(case: Case, gpu: bool) -> list[Row]:
    """Every strategy on these ranks, the spec's own marked.

    Args:
        gpu: whether the memory of GPUs is meant, or that of processes without one.
    """
    data, ways = case.task.load_data(), variants(case.training, case.ranks)
    return [_row(case.task, data, way, gpu) for way in ways]


def check(rows: Sequence[Row]) -> None:
    """See that there is a forecast.

    Raises:
        NotForeseen: no strategy could be followed, for what the task does.
    """
    if all(row.forecast is None for row in rows):
        raise NotForeseen(rows[0].refusal)


def measured(case: Case, gpu: bool) -> int:
    """Bytes that the fullest rank takes of two real updates, by the case's own strategy.

    Raises:
        NotMeasured: it broke off.
    """
    return measure(Trial(case.task, case.training, case.ranks, gpu))


def _row(task: Task, data: Data, variant: Variant, gpu: bool) -> Row:
    try:
        return Row(variant, foresee(task, data, variant, gpu))
    except ValueError as error:
        return Row(variant, None, str(error))


def report(case: Case, rows: list[Row], memory: int | None, taken: int | None) -> Mapping[str, Any]:
    """What `hposvc memory -o json` prints; `measured` is null unless it was."""
    return {
        "configuration": dict(case.params),
        "gpu_memory": memory,
        "measured": taken,
        "strategies": [row.plain(memory) for row in rows],
    }
