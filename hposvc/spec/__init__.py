"""The spec: the definition of a sweep as frozen dataclasses, read from a YAML 1.2 file or a dict.

`load` reads a spec, checks everything that does not need an import of the trainable, and reports
all problems with file, line and column; `check` imports the trainable too. `dump` freezes a spec
into plain data, which `load` and `restore` read back as an equal spec.
docs/CONTRACT.md#the-spec describes every key.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator

from hposvc import events
from hposvc.errors import Problem, SpecError
from hposvc.events import NOTHING
from hposvc.schedulers.early_stopping import Plateau
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import cross_checks, paths, registry
from hposvc.spec.bounds import bound_problems
from hposvc.spec.command import Collect, CommandItems, Launch
from hposvc.spec.cross_checks import default_strategy
from hposvc.spec.define_by_run import resolve_callable_space, resolve_space
from hposvc.spec.environment import Environment
from hposvc.spec.metrics import Limit, Limits, Metric, read_limit
from hposvc.spec.notify import Moment, Notify
from hposvc.spec.parsing import nested_names, overrides
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.parsing.document import Document, from_mapping, read_file
from hposvc.spec.parsing.unsupported import planned_feature_problems
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PlugIn, PluginType
from hposvc.spec.sections import (
    Checkpoints,
    Engine,
    Failure,
    Fidelity,
    Price,
    Register,
    Resources,
    Storage,
    Tracking,
    Trials,
)
from hposvc.spec.stopping import Baseline, Budget, Finalists, Stop
from hposvc.spec.types import (
    CLOSED,
    VERSION,
    Count,
    Name,
    Parameters,
    ParameterValue,
    Reference,
    Scalar,
    Version,
    Word,
)
from hposvc.spec.user_code import import_and_check
from hposvc.spec.warm_start import WarmStartSection, to_mapping
from searchers.searcher import Searcher, under_early_stopping
from searchers.space import Space
from trainables.training import Training

__all__ = ["Budget", "Checkpoints", "Engine", "Environment", "Failure", "Fidelity", "Limit"]
__all__ += ["Metric", "PlugIn", "Resources", "SpecError", "SweepSpec", "Tracking", "Training"]
__all__ += ["NOTHING", "Trials", "check", "dump", "expand", "flat", "load", "restore", "thaw"]

NAME_KEYS = {"search": "method", "scheduler": "type", "engine": "type"}  # `engine: local`

Search = Annotated[PlugIn, PlainValidator(partial(registry.read, SEARCHERS))]
Schedule = Annotated[PlugIn, PlainValidator(partial(registry.read, SCHEDULERS))]
PLUG_IN_SECTIONS: dict[str, PluginType[Any]] = {"search": SEARCHERS, "scheduler": SCHEDULERS}
AUTO, FIFO = PlugIn("auto"), PlugIn("fifo")


@dataclass(frozen=True)
class SweepSpec:
    """The definition of a sweep. What `load` returns has passed the checks of `problems`."""

    parameters: Parameters  # as declared; `space` is their parsed form
    metric: Metric | None = None  # None: `metrics` has several
    metrics: tuple[Metric, ...] = ()  # 2 to 4 metrics; empty: `metric` is the only one
    version: Version = VERSION
    folder: Word | None = None  # base of relative paths; None: each process's working directory
    name: Name = "sweep"  # prefix of the sweep's id
    project: Word = "default"  # the MLflow experiment
    trainable: Reference | None = None  # None: a command, or a simulation
    command: CommandItems | None = None  # a program and its arguments, in place of a trainable
    launch: Launch = "rank"  # a process of the command for each rank, or for each node
    collect: Collect | None = None  # how to read its metrics; None: it calls hposvc.report
    fidelity: Fidelity | None = None  # None: a trial runs until its trainable returns
    constraints: tuple[str, ...] = ()
    limits: Limits = ()  # bounds on a trial's results; `bounds` is their parsed form
    initial: tuple[dict[str, ParameterValue], ...] = ()  # tried first; missing parameters are drawn
    warm_start: WarmStartSection | None = None  # earlier sweeps to learn from; None: none
    search: Search = AUTO
    scheduler: Schedule = FIFO
    trials: Trials = field(default_factory=Trials)
    resources: Resources = field(default_factory=Resources)
    engine: Engine = field(default_factory=Engine)
    training: Training = field(default_factory=Training)  # strategy: ddp if workers > 1
    budget: Budget = field(default_factory=Budget)
    stop: Stop = field(default_factory=Stop)
    finalists: Finalists | None = None  # None: nothing is trained again
    baseline: Baseline | None = None  # None: the noise of the metric is not measured
    price: Price = field(default_factory=Price)  # changes nothing about how the sweep runs
    failure: Failure = field(default_factory=Failure)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    environment: Environment = field(default_factory=Environment)
    storage: Storage | None = None  # None: a folder under HPOSVC_HOME
    tracking: Tracking = field(default_factory=Tracking)
    register: Register | None = None  # None: nothing is registered
    notify: Notify = ()  # who is told of which moments
    seed: Count = 0
    description: str = ""
    tags: dict[str, Scalar] = field(default_factory=dict)
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "training", cross_checks.resolve_trials_per_process(self.training, self.trials)
        )

    def problems(self) -> list[Problem]:
        """Return what does not fit together between keys.

        Only new specs and new limits are checked: the spec of a recorded sweep was checked when
        it was recorded, and later versions may have stricter rules.
        """
        if absurd := [*bound_problems(self)]:
            return absurd  # the other checks may build what such a number asks for
        return [problem for check in cross_checks.CHECKS for problem in check(self)]

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """The metrics that are optimised: one, or several."""
        return self.metrics if self.metric is None else (self.metric,)

    def money(self, rank_s: float) -> float | None:
        """Return what rank-seconds cost; None: the price is unknown."""
        price = self.price.of_rank_hour(self.resources.gpus_per_worker)
        return None if price is None else price * rank_s / 3600

    @property
    def several(self) -> bool:
        """Whether there is a front of best trials, rather than one best trial."""
        return len(self.objectives) > 1

    @cached_property
    def bounds(self) -> tuple[Limit, ...]:
        """The limits, parsed."""
        return tuple(map(read_limit, self.limits))

    @property
    def works_in(self) -> str | None:
        """The folder in which trials run; None: each process's present working directory."""
        return self.environment.working_dir or self.folder

    @property
    def runnable(self) -> str:
        """The trainable, command or simulated curve of a trial, as text for people."""
        return self.trainable or shlex.join(self.command or ()) or str(self.engine.curve)

    @cached_property
    def space(self) -> Space:
        """The search space of the declared parameters and constraints."""
        return Space.from_dict(self.parameters, self.constraints)

    @property
    def first_points(self) -> tuple[Mapping[str, ParameterValue], ...]:
        """The points that are tried first: the baseline's, then the initial ones."""
        if self.baseline is None or self.baseline.params is None:
            return self.initial
        return (self.baseline.params, *self.initial)

    @cached_property
    def plateau(self) -> Plateau | None:
        """The rule that stops a trial for its own curve, beside any scheduler; None: no rule."""
        return registry.sibling_option(self.scheduler, "plateau", Plateau)

    @property
    def stops_early(self) -> bool:
        """Whether a trial may be stopped for its values."""
        keeps_all = registry.trait(SCHEDULERS, self.scheduler, "keeps_all")
        return self.plateau is not None or not keeps_all

    def searcher(self) -> Searcher:
        """Return the search method for this sweep.

        Raises:
            SpecError: there is no such method, or its options do not fit.
        """
        searcher = registry.build(SEARCHERS, self.search)
        return under_early_stopping(searcher) if self.stops_early else searcher

    @cached_property
    def moments(self) -> frozenset[Moment]:
        """The moments that some channel of `notify` is told of."""
        return frozenset(moment for channel in self.notify for moment in channel.moments)

    @property
    def plan(self) -> Plan:
        """The facts about the sweep that a scheduler needs."""
        metrics = len(self.objectives)
        return Plan(self.first_step, self.last_step, self.trials.max, self.seed, metrics)

    @property
    def first_step(self) -> int:
        """The step of the first rung."""
        return self.fidelity.min if self.fidelity else 1

    @property
    def last_step(self) -> int | None:
        """The step at which a trial is over; None: it is over when its trainable returns.

        A simulated curve never returns, so without a fidelity its trials have one step.
        """
        if self.fidelity is None:
            return 1 if self.engine.traits.simulated else None
        return self.fidelity.max


def load(
    source: Path | str | Document | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """Return the spec in a file (by its path), a document or a dict, with the values of `set`.

    Args:
        set: new values, by dotted keys.

    Raises:
        SpecError: all problems, each with file, line and column. If the spec uses planned
            features, only these are reported; otherwise misfits of single keys come before
            problems between keys.
    """
    return _read(_document(source, set), _checked)


def check(
    source: Path | str | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """Load a spec, and import the user's code to check that it fits.

    Raises:
        SpecError: see `load`; also a trainable or curve that cannot be imported or does not fit.
    """
    return _read(_document(source, set), lambda data: import_and_check(_checked(data)))


def restore(data: Mapping[str, object]) -> SweepSpec:
    """Return the spec that `dump` froze, and let its code be imported from its folder.

    Raises:
        SpecError: see `thaw`.
    """
    folder = data.get("folder")
    paths.import_too(folder if isinstance(folder, str) else None)
    return _thaw_once(json.dumps(data))


@lru_cache(maxsize=8)
def _thaw_once(text: str) -> SweepSpec:
    """Return a recorded spec: it never changes, and one command needs it several times."""
    return thaw(json.loads(text))


def thaw(data: Mapping[str, object]) -> SweepSpec:
    """Return the spec that `dump` froze; its plug-ins and its trainable may be gone by now.

    Types are checked, rules between keys are not: see `SweepSpec.problems`.

    Raises:
        SpecError: the data is not a spec of this version.
    """
    recorded = {**data}
    for conversion in events.CONVERSIONS:
        recorded = conversion.spec(recorded)
    document = from_mapping(recorded)
    with document.placing():
        return fill(SweepSpec, _with_strategy(document.data))


def dump(spec: SweepSpec) -> dict[str, object]:
    """Return the spec as JSON data, defaults included; `load` reads it back as an equal spec.

    A strategy that equals the default of `resources.workers` is left out, so that it keeps
    following the number of workers.
    """
    data = asdict(spec)
    for section in ("search", "scheduler"):
        data[section] = {NAME_KEYS[section]: data[section]["name"], **data[section]["options"]}
    data["warm_start"] = None if spec.warm_start is None else to_mapping(spec.warm_start)
    if spec.training.strategy == default_strategy(spec.resources.max_workers):
        del data["training"]["strategy"]
    plain: dict[str, object] = json.loads(json.dumps(data, allow_nan=False))
    return plain


def flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of a spec by their dotted keys."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{before}{key}.")
        else:
            values[f"{before}{key}"] = value
    return values


def expand(data: Mapping[str, object]) -> dict[str, object]:
    """Drop empty keys, and write out shorthands: `{type: asha}` for `asha`, rules of `stop`."""
    expanded = {
        key: {NAME_KEYS[key]: value} if key in NAME_KEYS and isinstance(value, str) else value
        for key, value in data.items()
        if value is not None
    }
    if isinstance(stop := expanded.get("stop"), list):
        expanded["stop"] = {"rules": stop}
    return expanded


def _document(
    source: Path | str | Document | Mapping[str, object], set: Mapping[str, object]
) -> Document:
    if isinstance(source, Document):
        document, folder = source, Path.cwd()
    elif isinstance(source, Mapping):
        document, folder = from_mapping(resolve_callable_space(source)), Path.cwd()
    else:
        document, folder = read_file(Path(source)), paths.folder_of(Path(source))
    document = nested_names.write_out(replace(document, data=expand(document.data)))
    document = nested_names.write_out(overrides.apply(document, set))
    data = expand(document.data)
    if isinstance(source, Mapping) and source.get("folder", "") is None:
        data["folder"] = None  # a spec packed for a cluster
    located = paths.locate(data, folder)
    if isinstance(source, Mapping):
        paths.import_too(f"{located['folder'] or folder}")
    else:
        paths.import_first(f"{located['folder'] or folder}")
    return replace(document, data=located)


def _read(document: Document, read: Callable[[dict[str, object]], SweepSpec]) -> SweepSpec:
    with document.placing():
        planned = list(planned_feature_problems(document.data))
        if planned:
            raise SpecError(planned)
        spec = read(_with_strategy(document.data))
    if spec.warm_start is None:
        return spec
    place = document.place(Problem(("warm_start", "from"), "")).place
    return replace(spec, warm_start=replace(spec.warm_start, place=place))


def _checked(data: dict[str, object]) -> SweepSpec:
    problems: list[Problem] = []
    for section, kind in PLUG_IN_SECTIONS.items():
        try:
            if section not in data:
                continue
            plug_in = registry.read(kind, data[section])
            if registry.may_be_imported(plug_in):
                registry.build(kind, plug_in)
        except SpecError as error:
            problems += (problem.under(section) for problem in error.problems)
    try:
        spec = fill(SweepSpec, resolve_space(data))
        problems += spec.problems()
    except SpecError as error:
        problems += error.problems
    if problems:
        raise SpecError(dict.fromkeys(problems))  # once each, though two checks may find it
    return spec


def _with_strategy(data: dict[str, object]) -> dict[str, object]:
    training, resources = data.get("training", {}), data.get("resources", {})
    workers = resources.get("workers", 1) if isinstance(resources, dict) else 1
    if isinstance(workers, dict):
        workers = workers.get("max", 1)
    if not isinstance(training, dict) or not isinstance(workers, int):
        return data
    return {**data, "training": {"strategy": default_strategy(workers), **training}}
