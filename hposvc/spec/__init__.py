"""The spec: what a sweep is, as frozen dataclasses, from a YAML 1.2 file or a dict.

`load` reads, checks everything that can be known without importing the trainable, and reports all
that it finds with file, line and column; `check` imports the trainable too. `dump` freezes a spec
into plain data, which `load` and `restore` read back as an equal spec.
docs/CONTRACT.md section 2 describes every key.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator

from hposvc import plugins
from hposvc.plugins import SCHEDULERS, SEARCHERS, Kind, PlugIn
from hposvc.reading import overrides
from hposvc.reading.document import Document, from_mapping, read_file
from hposvc.reading.fill import fill
from hposvc.reading.pieces import not_there_yet
from hposvc.reading.problems import Problem, SpecError
from hposvc.schedulers.plateau import Plateau
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import rules
from hposvc.spec.command import Collect, Items, Launch, Program, of_command
from hposvc.spec.ending import Budget, Finalists, Stop
from hposvc.spec.environment import Environment
from hposvc.spec.importing import imported
from hposvc.spec.kinds import (
    CLOSED,
    VERSION,
    Count,
    Name,
    Parameters,
    Reference,
    Scalar,
    Version,
    Word,
)
from hposvc.spec.outcomes import Limit, Limits, of_limits, of_metrics, read_limit
from hposvc.spec.register import Register, of_register
from hposvc.spec.rules import default_strategy
from hposvc.spec.sections import (
    Checkpoints,
    Engine,
    Failure,
    Fidelity,
    Metric,
    Resources,
    Storage,
    Tracking,
    Trials,
)
from hposvc.spec.suggested import with_called, with_space
from hposvc.spec.warm_start import Earlier, written
from searchers.space import Space
from trainables.training import Training

__all__ = ["Budget", "Checkpoints", "Engine", "Environment", "Failure", "Fidelity", "Limit"]
__all__ += ["Metric", "PlugIn", "Resources", "SpecError", "SweepSpec", "Tracking", "Training"]
__all__ += ["Trials", "check", "dump", "load", "restore"]

NOTHING: Mapping[str, object] = {}
WORDS = {"search": "method", "scheduler": "type", "engine": "type"}  # `engine: local`

Search = Annotated[PlugIn, PlainValidator(partial(plugins.read, SEARCHERS))]
Schedule = Annotated[PlugIn, PlainValidator(partial(plugins.read, SCHEDULERS))]
PLUGGED: dict[str, Kind[Any]] = {"search": SEARCHERS, "scheduler": SCHEDULERS}
AUTO, FIFO = PlugIn("auto"), PlugIn("fifo")


@dataclass(frozen=True)
class SweepSpec:
    """A sweep. `load` makes one from what people write; all checks of this module hold for it."""

    parameters: Parameters  # as declared; `space` is what they mean
    metric: Metric | None = None  # None: several
    metrics: tuple[Metric, ...] = ()  # several; empty: one
    version: Version = VERSION
    name: Name = "sweep"  # the sweep's id begins with it
    project: Word = "default"  # the MLflow experiment
    trainable: Reference | None = None  # None: a command, or simulated
    command: Items | None = None  # a program and its arguments, in place of a trainable
    launch: Launch = "rank"  # a process of the command for each rank, or for each node
    collect: Collect | None = None  # where its metrics are; None: it calls hposvc.report
    fidelity: Fidelity | None = None  # None: a trial is one step
    constraints: tuple[str, ...] = ()
    limits: Limits = ()  # that a trial's results must keep; `bounds` is what they mean
    initial: tuple[dict[str, Scalar], ...] = ()  # tried first; what is missing is filled in
    warm_start: Earlier | None = None  # sweeps to learn from; None: none
    search: Search = AUTO
    scheduler: Schedule = FIFO
    trials: Trials = field(default_factory=Trials)
    resources: Resources = field(default_factory=Resources)
    engine: Engine = field(default_factory=Engine)
    training: Training = field(default_factory=Training)  # strategy: ddp if workers > 1
    budget: Budget = field(default_factory=Budget)
    stop: Stop = field(default_factory=Stop)
    finalists: Finalists | None = None  # None: nothing is trained again
    failure: Failure = field(default_factory=Failure)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    environment: Environment = field(default_factory=Environment)
    storage: Storage | None = None  # None: a folder under HPOSVC_HOME
    tracking: Tracking = field(default_factory=Tracking)
    register: Register | None = None  # None: nothing is registered
    seed: Count = 0
    description: str = ""
    tags: dict[str, Scalar] = field(default_factory=dict)
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        resources, nan = self.resources, self.failure.nan
        ends = sorted({resources.ranks, resources.widest})
        object.__setattr__(self, "training", rules.settled(self.training, self.trials))
        problems = [
            *of_metrics(self.metric, self.metrics, self.scheduler.options),
            *rules.of_space(lambda: self.space, self.initial),
            *rules.of_trials(self.trials, self.budget, self.fidelity, self.scheduler),
            *rules.of_ending(self.stop, self.budget, self.finalists, len(self.objectives)),
            *rules.of_scheduler(self.scheduler, lambda: self.space, self.fidelity, self.plan),
            *rules.of_search(self.search, self.scheduler, len(self.objectives)),
            *rules.of_options(self.search, lambda: self.space),
            *of_register(self.register, self.engine, len(self.objectives)),
            *rules.of_plateau(lambda: self.plateau, self.checkpoints),
            *rules.of_engine(self.engine, self.trainable or self.command, self.resources),
            *rules.of_batched(self.engine, self.training),
            *of_command(
                self._program, [one.name for one in self.objectives], self.training, ends[0]
            ),
            *rules.of_span(self.resources, self.engine, self.command),
            *of_limits(self.bounds, (self.collect and self.collect.names) or ()),
            *rules.of_checkpoints(self.checkpoints, self.command),
            *rules.of_failure(self.failure, self.command, self.engine),
        ]
        for ranks in ends:
            problems += rules.of_training(self.training, self.parameters, ranks, nan)
            problems += rules.of_searched_training(self.training, lambda: self.space, ranks, nan)
        if problems:
            raise SpecError(dict.fromkeys(problems))

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """What is optimised: one metric, or several."""
        return self.metrics if self.metric is None else (self.metric,)

    @property
    def several(self) -> bool:
        """Whether there is a front of best trials, rather than one."""
        return len(self.objectives) > 1

    @cached_property
    def bounds(self) -> tuple[Limit, ...]:
        """What the limits mean."""
        return tuple(map(read_limit, self.limits))

    @property
    def _program(self) -> Program:
        return Program(self.command, self.launch, self.collect, self.trainable, self.parameters)

    @property
    def runs(self) -> str:
        """What a trial runs, as people call it."""
        return self.trainable or shlex.join(self.command or ()) or str(self.engine.curve)

    @cached_property
    def space(self) -> Space:
        """What is searched."""
        return Space.from_dict(self.parameters, self.constraints)

    @cached_property
    def plateau(self) -> Plateau | None:
        """When a trial is stopped for its own curve, beside any scheduler; None: never."""
        return plugins.beside(self.scheduler, "plateau", Plateau)

    @property
    def plan(self) -> Plan:
        """What a scheduler must know of it."""
        metrics = len(self.objectives)
        return Plan(self.first_step, self.last_step, self.trials.max, self.seed, metrics)

    @property
    def first_step(self) -> int:
        """Where the first rung lies."""
        return self.fidelity.min if self.fidelity else 1

    @property
    def last_step(self) -> int:
        """Where a trial is over."""
        return self.fidelity.max if self.fidelity else 1


def load(
    source: Path | str | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """The spec in a file (by its path) or a dict, with the values at the dotted keys of `set`.

    Raises:
        SpecError: all that is wrong, each with file, line and column. Features that are still to
            come are told first, then misfits of single keys, then what does not fit together.
    """
    return _read(_document(source, set), _checked)


def check(
    source: Path | str | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """`load`, and what only importing the user's code can tell.

    Raises:
        SpecError: see `load`; also a trainable or curve that cannot be imported or does not fit.
    """
    return _read(_document(source, set), lambda data: imported(_checked(data)))


def restore(data: Mapping[str, object]) -> SweepSpec:
    """The spec that `dump` froze. Its plug-ins and its trainable need not be there any more.

    Raises:
        SpecError: the data is no spec of this version.
    """
    return _read(from_mapping(data), lambda data: fill(SweepSpec, data))


def dump(spec: SweepSpec) -> dict[str, object]:
    """Plain data that JSON holds, defaults included; `load` reads it back as an equal spec.

    A strategy that follows from `resources.workers` is left out, so that it goes on following.
    """
    data = asdict(spec)
    for section in ("search", "scheduler"):
        data[section] = {WORDS[section]: data[section]["name"], **data[section]["options"]}
    data["warm_start"] = None if spec.warm_start is None else written(spec.warm_start)
    if spec.training.strategy == default_strategy(spec.resources.widest):
        del data["training"]["strategy"]
    plain: dict[str, object] = json.loads(json.dumps(data, allow_nan=False))
    return plain


def _document(source: Path | str | Mapping[str, object], set: Mapping[str, object]) -> Document:
    if isinstance(source, Mapping):
        document = from_mapping(with_called(source))
    else:
        document = read_file(Path(source))
    document = replace(document, data=_expand(document.data))
    document = overrides.apply(document, set)
    return replace(document, data=_expand(document.data))


def _expand(data: dict[str, object]) -> dict[str, object]:
    """Without keys that are empty, and with `{type: asha}` for `asha`."""
    return {
        key: {WORDS[key]: value} if key in WORDS and isinstance(value, str) else value
        for key, value in data.items()
        if value is not None
    }


def _read(document: Document, read: Callable[[dict[str, object]], SweepSpec]) -> SweepSpec:
    try:
        later = list(not_there_yet(document.data))
        if later:
            raise SpecError(later)
        return read(_with_strategy(document.data))
    except SpecError as error:
        problems = sorted(error.problems, key=document.order)
        raise SpecError(map(document.place, problems)) from error


def _checked(data: dict[str, object]) -> SweepSpec:
    problems: list[Problem] = []
    for section, kind in PLUGGED.items():
        try:
            if section in data:
                plugins.build(kind, plugins.read(kind, data[section]))
        except SpecError as error:
            problems += (problem.under(section) for problem in error.problems)
    try:
        spec = fill(SweepSpec, with_space(data))
        problems += rules.of_straggler(spec.failure, spec.engine)
    except SpecError as error:
        problems += error.problems
    if problems:
        raise SpecError(dict.fromkeys(problems))  # each once, though two of us may have seen it
    return spec


def _with_strategy(data: dict[str, object]) -> dict[str, object]:
    training, resources = data.get("training", {}), data.get("resources", {})
    workers = resources.get("workers", 1) if isinstance(resources, dict) else 1
    if isinstance(workers, dict):
        workers = workers.get("max", 1)
    if not isinstance(training, dict) or not isinstance(workers, int):
        return data
    return {**data, "training": {"strategy": default_strategy(workers), **training}}
