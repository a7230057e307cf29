"""Memory of a spec's training: forecast for each strategy, and measured for its own."""

import queue
import tempfile
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hposvc.backends.backend import Setting
from hposvc.backends.process.rank_commands import LocalLauncher
from hposvc.backends.process.rank_group import Exited, RankGroup
from hposvc.backends.process.slot import ProcessSlot
from hposvc.errors import SpecError, fail
from hposvc.events import error_line
from hposvc.spec import SweepSpec
from hposvc.state.trial import trial_name
from searchers import Params, call_rng
from trainables import Data, Task, load, nesting
from trainables.contract import Assignment, Message, Order, Outcome, Report, Training
from trainables.memory_estimation import measuring, short_run
from trainables.memory_estimation.forecast import (
    Forecast,
    Steps,
    Variant,
    adapted_to_ranks,
    make_forecast,
    variants,
)
from trainables.memory_estimation.gpus import memory_of


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
        if spec.first_points:
            params = spec.space.complete(spec.first_points[0], call_rng(spec.seed, 0))
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
        SpecError: the spec does not train a Task, or the code is a parameter.
    """
    if spec.variants is not None:
        message = "chooses the code, and model and samples are known of this folder's code only"
        raise fail(message, *spec.variants.path, fix="leave it out of the spec")
    task_params = {
        name: value for name, value in params.items() if not name.startswith(load.TRAINING)
    }
    cls = None if spec.trainable is None else load.resolve(spec.trainable)
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        message = (
            f"is {spec.runnable}; model and samples are known of a Task only (hposvc docs training)"
        )
        raise fail(message, "trainable")
    task: Task = nesting.build(cls, nesting.nest(task_params))
    return task


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


def _row(task: Task, data: Data, variant: Variant, gpu: bool, steps: Steps) -> StrategyForecast:
    try:
        return StrategyForecast(variant, make_forecast(task, data, variant, gpu, steps))
    except ValueError as error:
        return StrategyForecast(variant, None, str(error))


@dataclass(frozen=True)
class MemoryReport:
    """The memory of a configuration's training, in bytes."""

    configuration: Params
    rows: list[StrategyForecast]
    limit: int | None  # of the GPU to compare with
    measured: int | None  # of the fullest rank; None: it was not measured

    def data(self) -> dict[str, Any]:
        """Return the output of `hposvc memory -o json`."""
        return {
            "configuration": dict(self.configuration),
            "gpu_memory": self.limit,
            "measured": self.measured,
            "strategies": [row.plain(self.limit) for row in self.rows],
        }


def report(
    spec: SweepSpec,
    workers: int | None = None,
    gpu_memory: str | None = None,
    measure: bool = False,
) -> MemoryReport:
    """Forecast a trial's memory for each strategy, and measure it for the spec's own.

    Args:
        workers: None: the spec's.
        gpu_memory: size or name of a GPU to compare with.
        measure: train two updates, too.

    Raises:
        SpecError: the GPU is not known; the spec trains no Task, or one that can be forecast under
            no strategy; the two updates broke off.
    """
    limit = _limit(gpu_memory)
    on_gpu = spec.resources.gpus_per_worker > 0
    if measure and limit is not None and not on_gpu:
        raise fail("is of this machine: set resources.gpus_per_worker too", "--measure")
    if measure and (at_once := spec.training.share_base) > 1:
        raise fail(
            f"is {at_once}, and --measure trains one trial at a time",
            "training",
            "share_base",
            fix="leave --measure out for the forecast of all, or set it to 1",
        )
    with in_trial_folder(spec):
        case = Case.of(spec, workers)
        data, on_gpus = case.task.load_data(), on_gpu or limit is not None
        strategies = variants(case.training, case.ranks)
        steps: Steps = {}
        rows = [_row(case.task, data, strategy, on_gpus, steps) for strategy in strategies]
    taken = measured(spec, case) if measure else None
    if not measure and all(row.forecast is None for row in rows):
        raise fail(rows[0].refusal)
    return MemoryReport(case.params, rows, limit, taken)


def measured(spec: SweepSpec, case: Case) -> int:
    """Return the bytes of the rank that needs the most for two updates, in processes of their own.

    Raises:
        SpecError: the updates broke off; the message is the last line of the error.
        OutOfReach: a rank could not start: this machine has too few GPUs.
    """
    own = (name for name in case.params if not name.startswith(load.TRAINING))
    params = {
        **{name: case.params[name] for name in own},
        short_run.TASK: spec.trainable or "",
        measuring.TRIALS: case.training.trials_at_once(),
    }
    inbox: queue.SimpleQueue[tuple[RankGroup, Message | Exited]] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="hposvc-") as folder:
        setting = Setting("memory", spec, Path(folder), Path(folder))
        config = replace(
            setting.slot_config(),
            trainable=f"{measuring.__name__}:{measuring.train.__name__}",
            training=replace(case.training, trials_per_process=1),
            metrics=(measuring.METRIC,),
            total=1,
            world_size=case.ranks,
            storage=None,
            memory=None,
            nan="stop",
        )
        slot = ProcessSlot(
            "memory/slot", spec.resources, LocalLauncher(), lambda *posted: inbox.put(posted)
        )
        slot.prepare(config)
        try:
            while not slot.ready:
                slot.handle(*inbox.get())
            slot.carry_out(Assignment(Order(1, trial_name(1), params, None, 1, 1)))
            while True:
                match slot.handle(*inbox.get()):
                    case Report(metrics=metrics):
                        return int(metrics[measuring.METRIC])
                    case Outcome(message=message):
                        raise fail(error_line(message))
        finally:
            slot.close()


def _limit(gpu_memory: str | None) -> int | None:
    """Return the bytes of a size, or of a GPU by its name."""
    try:
        return None if gpu_memory is None else memory_of(gpu_memory)
    except ValueError as error:
        raise fail(f"{error}", "--gpu-memory") from error


@dataclass(frozen=True)
class OwnMemory:
    """The memory of a trial's fullest rank under the spec's own strategy, in bytes."""

    forecast: Forecast
    limit: int | None  # of the GPU to compare with; None: it is not known
    ranks: int
    training: Training

    @property
    def fits(self) -> bool | None:
        """Whether a rank fits on the GPU; None: the GPU is not known."""
        return None if self.limit is None else self.forecast.fits(self.limit)

    @property
    def checkpoint(self) -> int:
        """The bytes of a trial's checkpoint, roughly: weights and the state of the optimizer.

        Of one of several trials in a process, it has the weights that are trained, which take as
        much as gradients do.
        """
        forecast, trials = self.forecast, self.training.orders_at_once
        weights = forecast.gradients if trials > 1 else forecast.parameters
        return (weights + forecast.optimizer) // trials

    def data(self) -> dict[str, Any]:
        """Return the memory for JSON."""
        return {"peak": self.forecast.peak, "gpu_memory": self.limit, "fits": self.fits}


def own_memory(spec: SweepSpec, gpu_memory: str | None = None) -> OwnMemory | None:
    """Forecast a trial's memory under the spec's own strategy; None: there is no forecast.

    Args:
        gpu_memory: size or name of a GPU to compare with; None: that of `resources.accelerator`.

    Raises:
        SpecError: the GPU is not known.
    """
    limit = _limit(gpu_memory)
    if gpu_memory is None and spec.resources.accelerator is not None:
        with suppress(ValueError):  # a name of Ray's that says nothing of the memory
            limit = memory_of(spec.resources.accelerator.lower())
    on_gpu = spec.resources.gpus_per_worker > 0 or limit is not None
    try:
        with in_trial_folder(spec):
            case = Case.of(spec)
            own = next(each for each in variants(case.training, case.ranks) if each.chosen)
            row = _row(case.task, case.task.load_data(), own, on_gpu, {})
    except SpecError:  # no Task, so nothing is known of it
        return None
    return (
        None if row.forecast is None else OwnMemory(row.forecast, limit, case.ranks, own.training)
    )
