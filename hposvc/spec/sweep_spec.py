"""SweepSpec, the definition of a sweep: its sections, and what follows from them."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, get_args

from pydantic import Field, PlainValidator

from hposvc.errors import KeyPath, Problem, SpecError, shown
from hposvc.schedulers.early_stopping import Plateau
from hposvc.schedulers.scheduler import Plan
from hposvc.spec import cross_checks, registry
from hposvc.spec.command import Collect, CommandItems, Launch
from hposvc.spec.engines import Engine
from hposvc.spec.environment import Environment
from hposvc.spec.metrics import ENERGY, Limit, Limits, Metric, read_limit
from hposvc.spec.notify import Moment, Notify
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PlugIn
from hposvc.spec.scale import ScaleSection, with_sizes
from hposvc.spec.sections import (
    Checkpoints,
    DriverPlace,
    Failure,
    Fidelity,
    Price,
    Queue,
    Register,
    Resources,
    Storage,
    Trials,
    WarmStart,
    WarmStartSection,
)
from hposvc.spec.serving import Serve
from hposvc.spec.sinks import Tracking
from hposvc.spec.stopping import Baseline, Budget, Finalists, Stop
from hposvc.spec.types import (
    CLOSED,
    DESCRIPTIVE,
    VERSION,
    Descriptive,
    Name,
    Parameters,
    ParameterValue,
    Reference,
    Scalar,
    Version,
    Word,
)
from hposvc.spec.variants import Variants
from searchers import AcrossSizes, AtMost, Searcher, Sizes, Space, annotations_of, bounds_in, learns
from trainables.contract import COST, TOKENS, Training

Search = Annotated[PlugIn, PlainValidator(partial(registry.read, SEARCHERS))]
Schedule = Annotated[PlugIn, PlainValidator(partial(registry.read, SCHEDULERS))]
AUTO, FIFO, ANY = PlugIn("auto"), PlugIn("fifo"), WarmStart()


@dataclass(frozen=True)
class SweepSpec:
    """The definition of a sweep. What `load` returns has passed the checks of `problems`."""

    parameters: Parameters  # as declared; `space` is their parsed form
    metric: Metric | None = None  # None: `metrics` has several
    metrics: tuple[Metric, ...] = ()  # 2 to 4 metrics; empty: `metric` is the only one
    version: Version = VERSION
    # Base of relative paths; None: each process's working directory.
    folder: Descriptive[Word | None] = None
    name: Descriptive[Name] = "sweep"  # prefix of the sweep's id
    project: Descriptive[Word] = "default"  # the MLflow experiment
    trainable: Reference | None = None  # None: a command, or a simulation
    command: CommandItems | None = None  # a program and its arguments, in place of a trainable
    launch: Launch = "rank"  # a process of the command for each rank, or for each node
    collect: Collect | None = None  # how to read its metrics; None: it calls hposvc.report
    serve: Serve | None = None  # a server, whose load is the command; None: there is none
    # Functions that make datasets of Ray Data, by the names that ray.train.get_dataset_shard takes.
    datasets: dict[Word, Reference] = field(default_factory=dict)
    fidelity: Fidelity | None = None  # None: a trial runs until its trainable returns
    scale: ScaleSection | None = None  # None: trials have one size
    constraints: tuple[str, ...] = ()
    limits: Limits = ()  # bounds on a trial's results; `bounds` is their parsed form
    initial: tuple[dict[str, ParameterValue], ...] = ()  # tried first; missing parameters are drawn
    warm_start: WarmStartSection | None = ANY  # earlier sweeps to learn from; None: none
    memo: bool = False  # take results of equal trainings that are recorded in the project
    search: Search = AUTO
    scheduler: Schedule = FIFO
    trials: Trials = field(default_factory=Trials)
    resources: Resources = field(default_factory=Resources)
    driver: Descriptive[DriverPlace] = field(default_factory=DriverPlace)
    queue: Queue = field(default_factory=Queue)
    engine: Engine = field(default_factory=Engine)
    training: Training = field(default_factory=Training)  # strategy: ddp if workers > 1
    budget: Budget = field(default_factory=Budget)
    stop: Stop = field(default_factory=Stop)
    finalists: Finalists | None = None  # None: nothing is trained again
    baseline: Baseline | None = None  # None: the noise of the metric is not measured
    price: Descriptive[Price] = field(default_factory=Price)  # counts for `budget.cost` alone
    failure: Failure = field(default_factory=Failure)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    environment: Environment = field(default_factory=Environment)
    storage: Storage | None = None  # None: a folder under HPOSVC_HOME
    tracking: Descriptive[Tracking] = field(default_factory=Tracking)
    register: Register | None = None  # None: nothing is registered
    notify: Descriptive[Notify] = ()  # who is told of which moments
    seed: Annotated[int, Field(ge=0), AtMost(2**64)] = 0
    description: Descriptive[str] = ""
    tags: Descriptive[dict[str, Scalar]] = field(default_factory=dict)
    # Values that were chosen for keys that were left out, by dotted keys: see choices.py.
    chosen: Descriptive[dict[str, Scalar]] = field(default_factory=dict)
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.serve is not None and self.command is None:
            object.__setattr__(self, "command", self.serve.load)
        training = cross_checks.resolve_trials_per_process(self.training, self.trials)
        if self.scale is not None and self.scale.tokens_per_weight is not None:
            training = replace(training, tokens_per_weight=self.scale.tokens_per_weight)
        object.__setattr__(self, "training", training)
        object.__setattr__(self, "parameters", with_sizes(self.parameters, self.scale))

    def problems(self, skipped: Sequence[cross_checks.Check] = ()) -> list[Problem]:
        """Return what does not fit together between keys.

        Only new specs and new limits are checked: the spec of a recorded sweep was checked when
        it was recorded, and later versions may have stricter rules.
        """
        if absurd := [*_bound_problems(self)]:
            return absurd  # the other checks may build what such a number asks for
        checks = (check for check in cross_checks.CHECKS if check not in skipped)
        return [problem for check in checks for problem in check(self)]

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """The metrics that are optimised: one, or several."""
        return self.metrics if self.metric is None else (self.metric,)

    def money(self, rank_s: float) -> float | None:
        """Return what rank-seconds cost; None: the price is unknown."""
        price = self.price.of_rank_hour(self.resources.gpus_per_worker)
        return None if price is None else price * rank_s / 3600

    def spending(
        self, wall_s: float, rank_s: float, energy_kwh: float | None
    ) -> dict[str, tuple[float, float]]:
        """Return what was used and the limit, for each limit of the budget by its key.

        `wall` is in seconds, hours are in hours, and `cost` is in the currency of `price`. Energy
        that is not measured, None, counts as none.
        """
        budget, hours = self.budget, rank_s / 3600
        limits = {
            "wall": (wall_s, budget.wall),
            "gpu_hours": (hours * self.resources.gpus_per_worker, budget.gpu_hours),
            "cpu_hours": (hours * self.resources.cpus_per_worker, budget.cpu_hours),
            "energy_kwh": (energy_kwh or 0.0, budget.energy_kwh),
            "cost": (self.money(rank_s) or 0.0, budget.cost),
        }
        return {key: (used, limit) for key, (used, limit) in limits.items() if limit is not None}

    @property
    def needs_energy(self) -> bool:
        """Whether the sweep goes by the energy of its trials, so that it must be measured."""
        metrics = {*(one.name for one in self.objectives), *(one.metric for one in self.bounds)}
        worth = self.stop.worth
        limited = worth is not None and worth.energy_kwh is not None
        return ENERGY in metrics or limited or self.budget.energy_kwh is not None

    @property
    def several(self) -> bool:
        """Whether there is a front of best trials, rather than one best trial."""
        return len(self.objectives) > 1

    @property
    def finds_earlier(self) -> bool:
        """Whether `warm_start: auto` finds sweeps: the search learns from them, and is not misled.

        With several metrics or limits, earlier results count like the sweep's own.
        """
        finds = self.warm_start is not None and self.warm_start.auto and learns(self.search.name)
        compared = not (self.several or self.bounds or self.scale)
        return finds and compared and bool(self.space.searched)

    @cached_property
    def bounds(self) -> tuple[Limit, ...]:
        """The limits, parsed."""
        return tuple(map(read_limit, self.limits))

    @property
    def works_in(self) -> str | None:
        """The folder in which trials run; None: each process's present working directory."""
        return self.environment.working_dir or self.folder

    @property
    def runnable_key(self) -> str:
        """The key that says what a trial runs: `trainable`, `serve` or `command`."""
        return "trainable" if self.trainable else "serve" if self.serve else "command"

    @property
    def programs(self) -> dict[KeyPath, tuple[str, ...]]:
        """The command, or a server and the command that loads it, by their keys."""
        if (serve := self.serve) is not None:
            return {("serve", "command"): serve.command, ("serve", "load"): serve.load}
        return {} if self.command is None else {("command",): self.command}

    @property
    def program_items(self) -> tuple[str, ...]:
        """The items of all programs."""
        return tuple(item for items in self.programs.values() for item in items)

    @property
    def reported(self) -> frozenset[str] | None:
        """The metrics that reports have; None: only the program knows."""
        found = None if self.collect is None else self.collect.names
        computed = self.serve is not None and self.money(3600) is not None
        return found | {COST} if computed and found is not None and TOKENS in found else found

    @property
    def unit(self) -> str:
        """The name of a step, for people."""
        return self.fidelity.unit if self.fidelity else "step"

    @property
    def runnable(self) -> str:
        """The trainable, command or simulated curve of a trial, as text for people."""
        return self.trainable or shlex.join(self.command or ()) or str(self.engine.curve)

    @property
    def ends_by_size(self) -> bool:
        """Whether trials end by the size of their model, so that one before `last_step` is done."""
        return self.scale is not None or self.training.tokens_per_weight is not None

    @cached_property
    def space(self) -> Space:
        """The search space of the declared parameters and constraints."""
        return Space.from_dict(self.parameters, self.constraints)

    @cached_property
    def variants(self) -> Variants | None:
        """The versions of the code among which a parameter chooses; None: there is one version."""
        return Variants.of(self.parameters)

    @property
    def first_points(self) -> tuple[Mapping[str, ParameterValue], ...]:
        """The points that are tried first: the baseline's, then the initial ones.

        With `scale` they have the smallest size, unless they say another one.
        """
        given = [] if self.baseline is None else [self.baseline.params]
        points = [point for point in (*given, *self.initial) if point is not None]
        return tuple({**self.smallest, **point} for point in points)

    @property
    def smallest(self) -> Mapping[str, ParameterValue]:
        """The smallest size of `scale`; empty: there is none."""
        if self.scale is None:
            return {}
        return {self.scale.over: Sizes(self.space, self.scale.over).values[0]}

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
        searcher: Searcher = registry.build(SEARCHERS, self.search)
        if (scale := self.scale) is None or self.trials.max is None:
            return searcher
        return AcrossSizes(searcher, scale.over, self.trials.max, scale.at_target)

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
        return (self.fidelity and self.fidelity.min) or 1

    @property
    def last_step(self) -> int | None:
        """The step at which a trial is over; None: it is over when its trainable returns.

        A simulated curve never returns, so without a fidelity its trials have one step.
        """
        if self.fidelity is None:
            return 1 if self.engine.traits.simulated else None
        return self.fidelity.max


DESCRIPTIVE_KEYS = frozenset(
    key
    for key, annotation in annotations_of(SweepSpec).items()
    if DESCRIPTIVE in get_args(annotation)
)


def _bound_problems(spec: SweepSpec) -> Iterator[Problem]:
    """Check that no number of a spec is beyond the bound that its type has."""
    yield from _beyond(spec, SweepSpec, ())
    for section, kind in (("search", SEARCHERS), ("scheduler", SCHEDULERS)):
        plug_in = getattr(spec, section)
        if reference := kind.classes.get(plug_in.name):
            for option, annotation in annotations_of(registry.resolve(reference)).items():
                yield from _beyond(plug_in.options.get(option), annotation, (section, option))
    with suppress(SpecError):  # reported elsewhere
        yield from _beyond(spec.plateau, Any, ("scheduler", "plateau"))


def _beyond(value: object, annotation: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the numbers beyond their bounds in a value, of this type; mappings have one type."""
    if isinstance(value, int | float):
        for bound in bounds_in(annotation):
            if advice := bound.advice(value):
                yield Problem(path, f"is {shown(value)}", advice)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _beyond(inner, annotation, (*path, name))
    elif is_dataclass(value):
        for name, inner in annotations_of(type(value)).items():
            yield from _beyond(getattr(value, name, None), inner, (*path, name))
