"""The sections of a spec as frozen dataclasses; units and defaults stand beside the fields.

Each section checks itself; checks across sections are in hposvc/spec/cross_checks.py.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, WithJsonSchema

from hposvc.errors import Problem, SpecError, fail, shown
from hposvc.schedulers.scheduler import FIRST_PART
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.stopping import SEEDS, Fraction
from hposvc.spec.types import (
    CLOSED,
    Amount,
    AtOnce,
    Bytes,
    Count,
    Extendable,
    Interval,
    Labels,
    Name,
    Parallel,
    Positive,
    Retries,
    Seconds,
    Steps,
    Word,
    read_interval,
)
from searchers import AT_ONCE, COUNT, AtMost, nearest
from trainables.contract import COUNTED, Every, Nan
from trainables.storage import stores

# Of a micro-batch: 2^40 samples are 1 sample then, so a trial that asks for more never ends.
MOST_HALVINGS = 40

ALIAS = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)
RESERVED_ALIAS = re.compile(r"latest|v[0-9]+", re.ASCII | re.IGNORECASE)  # MLflow's own
GATE_KEYS = ("improvement",)
MAX_TRIALS = AtMost(COUNT, "leave it out for as many as a budget allows")
RESOURCE = AtMost(AT_ONCE, least=1e-4)  # Ray counts resources in ten thousandths
CustomResource = Annotated[float, Field(gt=0), AtMost(1e12, least=1e-4)]


@dataclass(frozen=True)
class Fidelity:
    """The length of a trial: schedulers may judge it from step `min` on; it is over at `max`."""

    max: Extendable[Steps]
    min: Steps | None = None  # the first rung; None until it is chosen: see choices.py
    unit: Word = "step"  # what a step is: a Task takes epoch, epoch/10, update, sample or token
    every: Steps | None = None  # steps from one report of a Task to the next
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.every is not None and self.every > self.max:
            raise ValueError(f"every is {self.every}, max is {self.max}; give {self.max} or less")
        if self.min is not None and self.min > self.max:
            raise ValueError(f"min is {self.min}, max is {self.max}; swap them")

    @property
    def interval(self) -> int:
        """The steps from one report of a Task to the next.

        Where steps are many, by default up to the first rung, and a 20th of a trial at most.
        """
        if self.every or self.unit not in COUNTED:
            return self.every or 1
        return min(self.min or 1, -(-self.max // FIRST_PART))


@dataclass(frozen=True)
class SearchSeeds:
    """The seeds that the search trains each configuration with: more while it may be the best."""

    max: Annotated[int, Field(ge=2), SEEDS]
    min: Annotated[int, Field(ge=1), SEEDS] = 1
    # What a seed counts that fails: the configuration is the worst of all, or nothing.
    on_failure: Literal["worst", "leave_out"] = "worst"
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise fail(f"is {self.min}, and max is {self.max}", "min", fix="swap them")


def read_search_seeds(value: object) -> object:
    """Return the seeds of each trial: a number of them, or a mapping."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"min": value, "max": value}
    if isinstance(value, Mapping):
        return fill(SearchSeeds, value)
    if value is None or isinstance(value, SearchSeeds):
        return value
    raise ValueError(f"is {shown(value)}; give {{min: 1, max: 5}}, or one number for every trial")


_SEEDS = [{"type": ["integer", "null"], "minimum": 2}, TypeAdapter(SearchSeeds).json_schema()]
SearchSeedsSection = Annotated[
    SearchSeeds | None, PlainValidator(read_search_seeds), WithJsonSchema({"anyOf": _SEEDS})
]


@dataclass(frozen=True)
class Trials:
    """The number of trials, in all and at once."""

    # None: until the budget is spent
    max: Extendable[Annotated[int, Field(ge=1), MAX_TRIALS] | None] = None
    parallel: Extendable[Parallel] = "auto"
    proposed: Extendable[Fraction] = 0.3  # of the trials begun, for what `hposvc propose` queues
    seeds: SearchSeedsSection = None  # trainings of each trial; None: one, with a seed of its own
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Span:
    """A range of workers for elastic trials: `min`, doubled while resources are free, to `max`."""

    min: AtOnce
    max: AtOnce
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise fail(f"is {self.min}, and max is {self.max}", "min", fix="swap them")
        counts = [self.min * 2**power for power in range(1, 21)]
        if self.max not in counts:
            below = max((count for count in counts if count < self.max), default=counts[0])
            nearest = " or ".join(map(str, sorted({below, 2 * below})))
            message = f"is {self.max}, and min is {self.min}, which is doubled while there is room"
            raise fail(f"{message}: give {nearest}, or one number of workers", "max")


def read_workers(value: object) -> object:
    """Return the number of ranks of a trial, or the span from the fewest to the most."""
    if isinstance(value, Mapping):
        return fill(Span, value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"is {shown(value)}; give 1 or more, or {{min: 1, max: 4}}")


_SPAN = TypeAdapter(Span).json_schema()
Workers = Annotated[
    int | Span,
    PlainValidator(read_workers),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, _SPAN]}),
    AtMost(AT_ONCE),
]


MARKET = "ray.io/market-type"  # Ray's label of how a node is paid for
MarketType = Literal["spot", "on-demand"]
MARKET_FORMS = "give spot, on-demand, or {first: spot, then: on-demand, after: 10m}"


@dataclass(frozen=True)
class Market:
    """The nodes to ask for, by how they are paid for, and those that will do after a wait."""

    first: MarketType
    then: MarketType | None = None  # None: no others will do
    after: Seconds = 600.0  # without room for a slot, until `then` is asked for
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.then == self.first:
            raise fail(f"is {self.then}, as first is", "then", fix="give the other one")

    @property
    def selector(self) -> str:
        """Ray's selector of all nodes that will do."""
        return self.first if self.then is None else f"in({self.first},{self.then})"


def read_market(value: object) -> object:
    """Return the market of a trial's nodes: a word for one, or a mapping."""
    if isinstance(value, str):
        value = {"first": value}
    if isinstance(value, Mapping):
        return fill(Market, value)
    if value is None or isinstance(value, Market):
        return value
    raise ValueError(f"is {shown(value)}; {MARKET_FORMS}")


_MARKET = [{"enum": ["spot", "on-demand", None]}, TypeAdapter(Market).json_schema()]
MarketSection = Annotated[
    Market | None, PlainValidator(read_market), WithJsonSchema({"anyOf": _MARKET})
]


@dataclass(frozen=True)
class Resources:
    """The resources of one trial: `workers` ranks with these resources each.

    With a span of workers a trial starts with the fewest, and gets more as others free them.
    """

    workers: Workers = 1
    cpus_per_worker: Annotated[float, Field(gt=0), RESOURCE] = 1.0
    # Below 1: one worker on a share of a GPU.
    gpus_per_worker: Annotated[float, Field(ge=0), RESOURCE] = 0.0
    memory_per_worker: Bytes | None = None  # bytes; read from a text like 4GiB
    accelerator: Word | None = None  # Ray's name of a GPU type: A100, H100
    custom: Mapping[str, CustomResource] = field(default_factory=dict)  # per worker
    labels: Labels = field(default_factory=dict)  # required of the nodes of its workers
    market: MarketSection = None  # None: nodes of any
    placement: Literal["pack", "strict_pack", "spread"] = "pack"
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        gpus = self.gpus_per_worker
        if gpus > 1 and gpus != int(gpus):
            raise fail(f"is {gpus}", "gpus_per_worker", fix="above 1, give a whole number")
        if 0 < gpus < 1 and self.max_workers > 1:
            message = (
                f"is {gpus} with {self.max_workers} workers; NCCL refuses two ranks on one GPU"
            )
            raise fail(f"{message}, so give 1 or set workers: 1", "gpus_per_worker")

    @property
    def ranks(self) -> int:
        """The number of ranks of a trial; of a span, the fewest."""
        return self.workers.min if isinstance(self.workers, Span) else self.workers

    @property
    def max_workers(self) -> int:
        """The number of ranks of a trial; of a span, the most."""
        return self.workers.max if isinstance(self.workers, Span) else self.workers

    @property
    def allowed_workers(self) -> tuple[int, ...]:
        """All numbers of ranks that a trial may have, ascending."""
        doublings = (self.max_workers // self.ranks).bit_length()
        return tuple(self.ranks * 2**power for power in range(doublings))

    @property
    def cpus_beside_data(self) -> float:
        """The CPUs that a worker itself takes where the rest is for tasks of Ray Data."""
        return min(1.0, self.cpus_per_worker / 2)

    def with_workers(self, ranks: int) -> "Resources":
        """Return the resources of a trial with this fixed number of ranks."""
        return replace(self, workers=ranks)


@dataclass(frozen=True)
class DriverPlace:
    """The node that the driver of a submitted sweep runs on; without needs, the cluster's head."""

    cpus: Annotated[float, Field(ge=0), RESOURCE] = 0.0
    memory: Bytes | None = None  # bytes; read from a text like 4GiB
    custom: Mapping[str, CustomResource] = field(default_factory=dict)
    labels: Labels = field(default_factory=dict)  # required of the node
    __pydantic_config__ = CLOSED

    @property
    def entrypoint(self) -> dict[str, object]:
        """The needs under Ray's names."""
        needs = {
            "entrypoint_num_cpus": self.cpus,
            "entrypoint_memory": self.memory,
            "entrypoint_resources": dict(self.custom),
            "entrypoint_label_selector": dict(self.labels),
        }
        return {name: need for name, need in needs.items() if need}


WARM_START_KEYS = ("from", "top")
AUTO, FOUND = "auto", "found"
IDS = f"give {AUTO}, the id of a sweep, or a list"


@dataclass(frozen=True)
class WarmStart:
    """Earlier sweeps whose trials are prior data."""

    sweeps: tuple[str, ...] = ()  # ids; of `auto`, those that were found when the sweep was made
    top: Count = 0  # how many of their best configurations are tried first
    auto: bool = True  # whether the sweeps are found, or were
    place: str = field(default="", compare=False)  # of `from` in the document; empty: recorded


def read_warm_start(value: object) -> WarmStart:
    """Return the warm start in the word `auto`, or in a mapping of `from` and `top`."""
    if value == AUTO:
        return WarmStart()
    if not isinstance(value, Mapping):
        raise ValueError(
            f"is {shown(value)}; give {AUTO}, or a mapping of {', '.join(WARM_START_KEYS)}"
        )
    auto = value.get("from", AUTO) == AUTO
    problems = [
        Problem((key,), "no such key", nearest(key, WARM_START_KEYS), at_key=True)
        for key in value
        if key not in WARM_START_KEYS and not (auto and key == FOUND)
    ]
    source, top = value.get(FOUND if auto else "from", ()), value.get("top", 0)
    sweeps = [source] if isinstance(source, str) else source
    if not isinstance(sweeps, list | tuple) or not all(isinstance(sweep, str) for sweep in sweeps):
        problems.append(Problem(("from",), f"is {shown(source)}", IDS))
    elif not auto and not (sweeps and all(sweeps)):
        problems.append(Problem(("from",), "is empty", IDS))
    elif len(set(sweeps)) < len(sweeps):
        problems.append(Problem(("from",), "names a sweep twice", "remove one"))
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        problems.append(Problem(("top",), f"is {shown(top)}", "give a whole number from 0 up"))
    if problems:
        raise SpecError(problems)
    return WarmStart(tuple(sweeps), top, auto)


def warm_start_mapping(warm: WarmStart) -> dict[str, Any]:
    """Return the mapping that `read_warm_start` reads."""
    found = {FOUND: list(warm.sweeps)} if warm.auto and warm.sweeps else {}
    return {"from": AUTO if warm.auto else list(warm.sweeps), "top": warm.top, **found}


_ID = {"type": "string", "minLength": 1}
_MAPPING = {
    "type": "object",
    "properties": {
        "from": {
            "anyOf": [_ID, {"type": "array", "items": _ID, "minItems": 1}],
            "default": AUTO,
        },
        "top": {**TypeAdapter(Count).json_schema(), "default": 0},
    },
    "additionalProperties": False,
}
_WARM_START_FORMS = {"anyOf": [{"const": AUTO}, _MAPPING]}
WarmStartSection = Annotated[
    WarmStart, PlainValidator(read_warm_start), WithJsonSchema(_WARM_START_FORMS)
]


LEAST_WEIGHT = 0.001  # but for 0
MOST = 1000  # of a weight, and of a priority in either direction


@dataclass(frozen=True)
class Queue:
    """The sweep's place among the sweeps that share its cluster: hposvc docs queue."""

    name: Name = "default"
    priority: Extendable[Annotated[int, Field(ge=-MOST, le=MOST)]] = 0
    # 0: only what the others leave.
    weight: Extendable[Annotated[float, Field(ge=0, le=MOST)]] = 1.0
    # Slots at once; None: as many as `trials.parallel` says.
    max_parallel: Extendable[AtOnce | None] = None
    preemptible: bool = True  # False: it keeps its slots until it needs them no more
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if 0 < self.weight < LEAST_WEIGHT:
            fix = f"give 0 for what the others leave, or {LEAST_WEIGHT:g} and more"
            raise fail(f"is {self.weight:g}", "weight", fix=fix)


@dataclass(frozen=True)
class Failure:
    """The handling of failures: how often a trial is tried again, by cause."""

    infra_retries: Count = 3  # a node, process or network was lost
    preempt_retries: Retries = "unlimited"  # a spot node was taken away
    user_retries: Count = 0  # the trainable raised
    grace: Seconds = 60.0  # seconds from a request to stop until it is enforced
    stall: Annotated[Seconds, Field(ge=1)] = 600.0  # seconds without a sign of life
    # Seconds that a trial may run, summed over its orders; then it fails. None: no limit.
    timeout: Annotated[Seconds, Field(ge=1)] | None = None
    # A rank or node that is slower than its peers (trainables/monitoring/slow_ranks.py says how it
    # is detected). drain: its trial goes on elsewhere, and nothing new starts on that node.
    straggler: Literal["report", "drain"] = "report"
    # Out of memory. shrink: go on with micro-batches of half the size and the same batch; where
    # that is impossible (always for commands and functions), the trial fails for good.
    oom: Literal["shrink", "fail"] = "shrink"
    # An update whose loss or gradients are not finite. stop: the trial ends as diverged; skip: the
    # update is left out; rollback: back to a checkpoint, with a lower learning rate. A reported
    # metric that is not finite always ends its trial.
    nan: Nan = "stop"
    __pydantic_config__ = CLOSED

    def retries(
        self,
        cause: Literal[
            "user",
            "oom",
            "oversize",
            "diverged",
            "timeout",
            "stalled",
            "infra",
            "preempt",
            "storage",
        ],
    ) -> int | None:
        """Return how many failures of a cause are retried; None: any number."""
        if cause == "oversize":
            return MOST_HALVINGS if self.oom == "shrink" else 0
        if cause in ("oom", "diverged", "timeout"):
            return 0
        if cause == "preempt":
            return None if self.preempt_retries == "unlimited" else self.preempt_retries
        return self.user_retries if cause == "user" else self.infra_retries


@dataclass(frozen=True)
class Checkpoints:
    """The rules by which checkpoints of a trial are written and kept."""

    every: Interval = 1  # units of fidelity, or a period; `interval` is its parsed form
    keep_last: Positive = 1
    keep_best: Count = 1
    # Bytes of all checkpoints of a sweep; read from a text like 20GiB.
    quota: Extendable[Bytes | None] = None
    __pydantic_config__ = CLOSED

    @property
    def interval(self) -> Every:
        """The interval of checkpoints, beside those at the end of an order and at decisions."""
        return read_interval(self.every)


def _check_storage(value: str) -> str:
    if stores.is_url(value):
        stores.check_url(value)
    return value


Storage = Annotated[Word, AfterValidator(_check_storage)]  # a folder, or the URL of a store


def read_gate(value: object) -> float:
    """Return the improvement over the champion, from a number or `{improvement: NUMBER}`.

    The improvement is in the metric's unit.
    """
    if isinstance(value, Mapping):
        for key in value:
            if key not in GATE_KEYS:
                raise fail("no such key", str(key), fix=nearest(key, GATE_KEYS), at_key=True)
        if "improvement" not in value:
            raise fail("is missing", "improvement", fix="give a number from 0 up", at_key=True)
        value = value["improvement"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"is {shown(value)}; give a number from 0 up, in the metric's unit")
    return float(value)  # type: ignore[arg-type]


_AMOUNT = {"type": "number", "minimum": 0}
_IMPROVEMENT = {
    **{"type": "object", "properties": {"improvement": _AMOUNT}},
    **{"required": ["improvement"], "additionalProperties": False},
}
Gate = Annotated[
    float, PlainValidator(read_gate), WithJsonSchema({"anyOf": [_AMOUNT, _IMPROVEMENT]})
]


@dataclass(frozen=True)
class Register:
    """The registered model of the best trial, and when its version becomes the champion."""

    model: Word
    alias: Word = "champion"
    gate: Gate = 0.0  # least improvement over the alias's present version, in the metric's unit
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if set(self.model) & set("/:'\"%") or set(self.model) <= {"."}:
            message = "leave out slashes and colons, which MLflow refuses, and quotes and %"
            raise fail(f"is {shown(self.model)}", "model", fix=message)
        if not ALIAS.fullmatch(self.alias):
            message = "use letters, digits, '_' and '-', 255 at most"
            raise fail(f"is {shown(self.alias)}", "alias", fix=message)
        if RESERVED_ALIAS.fullmatch(self.alias):
            message = "which MLflow keeps to itself, like v1; choose another, such as champion"
            raise fail(f"is {shown(self.alias)}, {message}", "alias")


@dataclass(frozen=True)
class Price:
    """Price of an hour, in a currency of the user's own, and the CO2 of a kilowatt-hour."""

    gpu_hour: Amount | None = None  # None: unknown
    worker_hour: Amount | None = None  # of a worker without GPUs; None: unknown
    currency: Annotated[str, Field(max_length=20)] = ""  # as shown behind amounts
    co2_kg_per_kwh: Amount | None = None  # of the electricity; None: unknown
    __pydantic_config__ = CLOSED

    def of_rank_hour(self, gpus: float) -> float | None:
        """Return the price of an hour of a worker with so many GPUs; None: unknown."""
        if not gpus:
            return self.worker_hour
        return None if self.gpu_hour is None else self.gpu_hour * gpus

    def co2_kg(self, energy_kwh: float | None) -> float | None:
        """Return what energy emits, in kg of CO2; None: the energy or its intensity is unknown."""
        if energy_kwh is None or self.co2_kg_per_kwh is None:
            return None
        return energy_kwh * self.co2_kg_per_kwh

    def text(self, amount: float) -> str:
        """Return an amount for people, with its currency: `12.30 EUR`."""
        return f"{amount_text(amount)} {self.currency}".rstrip()


def amount_text(amount: float) -> str:
    """Return an amount without its currency."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.2f}"
