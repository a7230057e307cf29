"""The sections of a spec as frozen dataclasses; units and defaults stand beside the fields.

Each checks itself; what ties sections together is in hposvc/spec/rules.py.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator

from hposvc.plugins import REFERENCE
from hposvc.reading.fill import fill
from hposvc.reading.problems import fail, shown
from hposvc.spec.kinds import (
    CLOSED,
    Bytes,
    Count,
    Interval,
    Labels,
    Parallel,
    Positive,
    Retries,
    Seconds,
    Word,
    read_interval,
)
from trainables.checkpoints import stores
from trainables.checkpoints.checkpoint import Every
from trainables.worker import Nan

# Of a micro-batch: one of 2^40 samples is one sample then, so who asks for more never ends.
MOST_HALVINGS = 40
SELECT = re.compile(r"last|best|mean_[1-9][0-9]{0,5}", re.ASCII)


@dataclass(frozen=True)
class Metric:
    """What is optimised. Values are as the user reports them; only `loss` flips their sign."""

    name: Word
    goal: Literal["minimize", "maximize"]
    select: str = "last"  # of a trial's values: last, best, or mean_K, the mean of the last K
    target: float | None = None  # a value as good as this ends the sweep; None: no target
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if not SELECT.fullmatch(self.select):
            message = "choose last, best, or mean_5 for the mean of the last 5"
            raise fail(f"is {shown(self.select)}; {message}", "select")

    def loss(self, value: float) -> float:
        """The value signed so that lower is better."""
        return -value if self.goal == "maximize" else value

    def value(self, curve: Sequence[tuple[int, float]]) -> float | None:
        """The selected value of a trial's (step, value) points, steps increasing; None: no point.

        `best` passes over NaN; `last` and `mean_K` give NaN where it is among their points.
        """
        values = [value for _, value in curve]
        if not values:
            return None
        if self.select == "last":
            return values[-1]
        if self.select == "best":
            return min(values, key=lambda value: (math.isnan(value), self.loss(value)))
        return fmean(values[-int(self.select.removeprefix("mean_")) :])

    def losses(self, curve: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        """The selected loss so far at each step; values that are not finite are passed over."""
        points = [(step, self.loss(value)) for step, value in curve if math.isfinite(value)]
        losses = [loss for _, loss in points]
        if self.select == "best":
            losses = list(accumulate(losses, min))
        elif self.select != "last":
            width = int(self.select.removeprefix("mean_"))
            losses = [fmean(losses[max(0, end - width) : end]) for end in range(1, len(losses) + 1)]
        return tuple((step, loss) for (step, _), loss in zip(points, losses, strict=True))

    def reached(self, value: float) -> bool:
        """Whether the value is as good as the target; False without one."""
        return self.target is not None and self.loss(value) <= self.loss(self.target)


@dataclass(frozen=True)
class Fidelity:
    """How long a trial is: it may be judged from step `min` on, and is over at step `max`."""

    max: Positive  # steps
    min: Positive = 1  # steps; the first rung
    unit: Word = "step"  # what people call a step: epoch, tokens
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, max is {self.max}; swap them")


@dataclass(frozen=True)
class Trials:
    """How many trials."""

    max: Positive | None = None  # None: until the budget is spent
    parallel: Parallel = "auto"
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Span:
    """From `min` ranks on, doubled while there is room, up to `max`."""

    min: Positive
    max: Positive
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        counts = [self.min * 2**power for power in range(1, 21)]
        if self.max not in counts:
            below = max((count for count in counts if count < self.max), default=counts[0])
            nearest = " or ".join(map(str, sorted({below, 2 * below})))
            message = f"is {self.max}, and min is {self.min}, which is doubled while there is room"
            raise fail(f"{message}: give {nearest}, or one number of workers", "max")


def read_workers(value: object) -> object:
    """How many ranks a trial has, or from how many to how many."""
    if isinstance(value, Mapping):
        return fill(Span, value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"is {shown(value)}; give 1 or more, or {{min: 1, max: 4}}")


Workers = Annotated[int | Span, PlainValidator(read_workers)]


@dataclass(frozen=True)
class Resources:
    """What one trial runs on: `workers` ranks with these resources each.

    A span of them: it starts with the fewest and gets more once others leave them free.
    """

    workers: Workers = 1
    cpus_per_worker: Annotated[float, Field(gt=0)] = 1.0
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0  # below 1: one worker on a share of a GPU
    memory_per_worker: Bytes | None = None  # a text like 4GiB is read as bytes
    accelerator: Word | None = None  # Ray's name of a GPU type: A100, H100
    custom: Mapping[str, Annotated[float, Field(gt=0)]] = field(default_factory=dict)  # a worker's
    labels: Labels = field(default_factory=dict)  # that the nodes of its workers must have
    placement: Literal["pack", "strict_pack", "spread"] = "pack"
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        gpus = self.gpus_per_worker
        if gpus > 1 and gpus != int(gpus):
            raise fail(f"is {gpus}; above 1, give a whole number", "gpus_per_worker")
        if 0 < gpus < 1 and self.widest > 1:
            message = f"is {gpus} with {self.widest} workers; NCCL refuses two ranks on one GPU"
            raise fail(f"{message}, so give 1 or set workers: 1", "gpus_per_worker")

    @property
    def ranks(self) -> int:
        """The ranks of a trial, or the fewest that it has."""
        return self.workers.min if isinstance(self.workers, Span) else self.workers

    @property
    def widest(self) -> int:
        """The most ranks that a trial has."""
        return self.workers.max if isinstance(self.workers, Span) else self.workers

    @property
    def widths(self) -> tuple[int, ...]:
        """All the numbers of ranks that a trial may have, ascending."""
        doublings = (self.widest // self.ranks).bit_length()
        return tuple(self.ranks * 2**power for power in range(doublings))

    def of(self, ranks: int) -> "Resources":
        """The same for a trial with just so many."""
        return replace(self, workers=ranks)


@dataclass(frozen=True)
class Engine:
    """What carries the orders out."""

    type: Literal["ray", "tune", "local", "simulate"] = "ray"
    curve: str | None = None  # of simulate: module:function, (params, step) -> (metrics, seconds)
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.type == "simulate" and self.curve is None:
            raise fail("is missing; give module:function", "curve", at_key=True)
        if self.type != "simulate" and self.curve is not None:
            message = f"is for type simulate, and type is {self.type}; remove it"
            raise fail(message, "curve", at_key=True)
        if self.curve is not None and not REFERENCE.fullmatch(self.curve):
            raise fail(f"is {shown(self.curve)}; write module:function", "curve")


@dataclass(frozen=True)
class Failure:
    """What happens when a trial fails: how often it is tried again, by cause."""

    infra_retries: Count = 3  # a node, process or network was lost
    preempt_retries: Retries = "unlimited"  # a spot node was taken away
    user_retries: Count = 0  # the trainable raised
    grace: Seconds = 60.0  # seconds from a request to stop until it is enforced
    stall: Annotated[Seconds, Field(ge=1, le=1e9)] = 600.0  # seconds without a sign of life
    # The longest that a trial may run, in all its orders; then it fails. None: as long as it takes.
    timeout: Annotated[Seconds, Field(ge=1, le=1e9)] | None = None
    # A rank, or its node, that is slower than its like (watching/straggling.py says how that is
    # found). drain: its trial goes on elsewhere, and nothing new starts on that node.
    straggler: Literal["report", "drain"] = "report"
    # Too little memory. shrink: go on with micro-batches of half the size and the same batch; where
    # that can't be done, which includes every command and function, it fails, and for good.
    oom: Literal["shrink", "fail"] = "shrink"
    # An update whose loss or gradients are not finite. stop: the trial ends as diverged; skip: the
    # update is left out; rollback: back to a checkpoint, with a lower learning rate. A metric that
    # is reported and not finite ends its trial always.
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
        """How many failures of a cause are forgiven; None: any number."""
        if cause == "oversize":
            return MOST_HALVINGS if self.oom == "shrink" else 0
        if cause in ("oom", "diverged", "timeout"):
            return 0
        if cause == "preempt":
            return None if self.preempt_retries == "unlimited" else self.preempt_retries
        return self.user_retries if cause == "user" else self.infra_retries


@dataclass(frozen=True)
class Checkpoints:
    """Which checkpoints of a trial are written and kept."""

    every: Interval = 1  # units of fidelity, or a period; `interval` is what it means
    keep_last: Positive = 1
    keep_best: Count = 1
    quota: Bytes | None = None  # of all that a sweep keeps; a text like 20GiB is read as bytes
    __pydantic_config__ = CLOSED

    @property
    def interval(self) -> Every:
        """How often one is kept; always at the end of an order, and where a decision is due."""
        return read_interval(self.every)


@dataclass(frozen=True)
class Tracking:
    """Where MLflow is."""

    uri: Word | None = None  # None: MLFLOW_TRACKING_URI, or the embedded one
    experiment: Word | None = None  # None: the project
    system_metrics: bool = False  # what a Task reports of its machine, in MLflow's names
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.uri is not None and (self.uri.startswith("file:") or ":" not in self.uri):
            message = "names a folder, which MLflow 3 refuses; write sqlite:///PATH or http://HOST"
            raise fail(message, "uri")


def _in_reach(value: str) -> str:
    if stores.is_url(value):
        stores.check_url(value)
    return value


Storage = Annotated[Word, AfterValidator(_in_reach)]  # a folder, or the URL of a store
