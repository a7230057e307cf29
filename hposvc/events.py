"""What can happen in a sweep, and how it is written down.

An event is in the journal before anything acts on it, and state changes only by applying events:
so a sweep is resumed by reading its journal and going on. Times are seconds since the epoch, or
since the start on a simulated clock. `VERSION` grows when a reader of old journals must know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from searchers.searcher import Observation
from searchers.space import Params
from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet

VERSION = 2

# oversize: it ran out of memory, and half of a micro-batch may fit; diverged: it can't go on;
# timeout: it ran for longer than one may, and was ended for it; stalled: it hung, which mostly is
# the network's or a node's doing; storage: no room to write
Cause = Literal[
    "user", "oom", "oversize", "diverged", "timeout", "stalled", "infra", "preempt", "storage"
]
OWN: tuple[Cause, ...] = ("user", "oom", "oversize", "diverged", "timeout")  # a trial's own fault
TIMEOUT: Cause = "timeout"
WIDER = "wider"  # why an order ends whose trial goes on with more ranks: nobody is in a hurry
Verdict = Literal["continue", "pause", "park", "stop", "kill"]
SweepEnd = Literal["COMPLETED", "STOPPED", "FAILED"]
# drain: no new trials, and the others go on as they would; pause: until somebody resumes it;
# extend: with other limits; retry: what failed
Verb = Literal["stop", "drain", "kill", "pause", "extend", "retry"]
End = Literal["trials", "space", "plateau", "drain", "target", "budget", "user", "failures"]
# The ends at which what runs is stopped as well; at the others it goes on.
HALTS: tuple[End, ...] = ("target", "budget", "user", "failures")


@dataclass(frozen=True)
class Order:
    """What a slot carries out: run a trial with these parameters for the steps `first..until`."""

    id: int
    trial: str
    params: Params
    start: Saved | None  # the checkpoint to start from; None: from nothing
    first: int
    until: int
    milestones: tuple[int, ...] = ()  # the steps at which the ranks wait for a decision
    parent: str | None = None  # whose checkpoint `start` is, if it is another trial's
    seed_of: str | None = None  # the trial whose random numbers it draws; None: its own
    shrink: int = 0  # how often the micro-batches of the trial were halved
    repeat: int = 0  # which repeat of a finalist it trains, from 1; 0: the trial itself
    workers: int = 0  # the ranks that carry it out; 0: as many as resources.workers says


@dataclass(frozen=True)
class Attached:
    """A driver took the sweep; orders that an earlier driver had out are lost."""

    kind: ClassVar[str] = "attached"
    time: float
    driver: str  # host:pid


@dataclass(frozen=True)
class Proposed:
    """A new trial, with what its first order is to do."""

    kind: ClassVar[str] = "proposed"
    time: float
    trial: str
    params: Params
    note: Mapping[str, Any]
    until: int
    milestones: tuple[int, ...] = ()
    waited: float = 0.0  # seconds until it was proposed while at least one slot waited


@dataclass(frozen=True)
class Recalled:
    """Trials of other sweeps as they were when this one began, in the terms of its space."""

    kind: ClassVar[str] = "recalled"
    time: float
    trials: tuple[Observation, ...]  # ids are SWEEP/TRIAL; parameters and losses are this sweep's


@dataclass(frozen=True)
class Ordered:
    """An order goes to a slot."""

    kind: ClassVar[str] = "ordered"
    time: float
    order: Order


@dataclass(frozen=True)
class Checkpointed:
    """A checkpoint is durable; it counts once its step is reported."""

    kind: ClassVar[str] = "checkpointed"
    time: float
    order: int
    trial: str
    saved: Saved


@dataclass(frozen=True)
class Reported:
    """Rank 0's metrics at a step; the first report of (trial, step) stands."""

    kind: ClassVar[str] = "reported"
    time: float
    order: int
    trial: str
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Described:
    """Which samples a trial has; the first word of a trial stands."""

    kind: ClassVar[str] = "described"
    time: float
    order: int
    trial: str
    data: tuple[DataSet, ...]


@dataclass(frozen=True)
class Decided:
    """The controller's answer to a milestone, or a stop that nobody asked for.

    `pause` leaves a trial to its scheduler; `park` only takes its slot away for a while.
    """

    kind: ClassVar[str] = "decided"
    time: float
    trial: str
    order: int | None  # None: no slot has the trial
    step: int
    verdict: Verdict
    reason: str  # a word: rung, diverged, target, budget, user
    detail: str = ""  # what the decision was made from, for people
    whole: bool = False  # the whole sweep ends: if that is taken back, the trial goes on


@dataclass(frozen=True)
class Ended:
    """The ranks let go of an order: its steps are done, or it was told to stop."""

    kind: ClassVar[str] = "ended"
    time: float
    order: int
    trial: str


@dataclass(frozen=True)
class Failed:
    """An order broke off; `message` is for people, its last line says what it was."""

    kind: ClassVar[str] = "failed"
    time: float
    order: int
    trial: str
    cause: Cause
    message: str
    damaged: bool = False  # the checkpoint that it was to start from can't be used


@dataclass(frozen=True)
class Requested:
    """Somebody steers the sweep, or one trial of it."""

    kind: ClassVar[str] = "requested"
    time: float
    verb: Verb
    trial: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # of `extend`: dotted key to value
    by: str = ""  # user@host


@dataclass(frozen=True)
class Cooled:
    """A trial that failed for no reason of its own has waited long enough to be tried again."""

    kind: ClassVar[str] = "cooled"
    time: float
    trial: str


@dataclass(frozen=True)
class Full:
    """There is no room to write, or next to none: the sweep rests until somebody makes some."""

    kind: ClassVar[str] = "full"
    time: float
    detail: str  # for people: what could not be written, or where how much is free


@dataclass(frozen=True)
class Closed:
    """No new trials from here; some reasons end what runs, too (HALTS)."""

    kind: ClassVar[str] = "closed"
    time: float
    reason: End


@dataclass(frozen=True)
class Rested:
    """The driver let go of a sweep that somebody paused, or that has no room to write."""

    kind: ClassVar[str] = "rested"
    time: float
    reason: str = "user"


@dataclass(frozen=True)
class Finished:
    """The sweep is over."""

    kind: ClassVar[str] = "finished"
    time: float
    state: SweepEnd
    reason: str


Event = (
    Attached
    | Recalled
    | Proposed
    | Ordered
    | Checkpointed
    | Reported
    | Described
    | Decided
    | Ended
    | Failed
    | Requested
    | Cooled
    | Full
    | Closed
    | Rested
    | Finished
)
BackendEvent = Checkpointed | Reported | Described | Ended | Failed

_TYPES: dict[str, type[Event]] = {each.kind: each for each in get_args(Event)}
_ENCODER = json.JSONEncoder(default=vars, separators=(",", ":"))


class UnknownEvent(ValueError):
    """The journal holds an event that this version does not know."""


def to_json(event: Event) -> str:
    """The event's fields but its kind and time, which are columns of the journal."""
    body = {name: value for name, value in vars(event).items() if name != "time"}
    return _ENCODER.encode(body)


def from_json(kind: str, time: float, body: str) -> Event:
    """The event that `to_json` wrote.

    Raises:
        UnknownEvent: the journal was written by a later version.
    """
    event_type = _TYPES.get(kind)
    if event_type is None:
        raise UnknownEvent(
            f"journal: event kind {kind!r} is unknown here (this hposvc reads version {VERSION}); "
            "install the one that wrote this journal, or a later one"
        )
    values = json.loads(body)
    if event_type is Ordered:
        order = values["order"]
        start = order.pop("start")
        milestones = tuple(order.pop("milestones"))
        saved = None if start is None else Saved(**start)
        return Ordered(time, Order(**order, start=saved, milestones=milestones))
    if event_type is Checkpointed:
        values["saved"] = Saved(**values["saved"])
    if event_type is Described:
        values["data"] = tuple(DataSet(**one) for one in values["data"])
    if event_type is Proposed:
        values["milestones"] = tuple(values["milestones"])
    if event_type is Recalled:
        values["trials"] = tuple(map(_observation, values["trials"]))
    return event_type(time=time, **values)


def _observation(body: dict[str, Any]) -> Observation:
    curve = tuple((step, loss) for step, loss in body.pop("curve"))
    losses, excess = tuple(body.pop("losses")), tuple(body.pop("excess"))
    return Observation(**body, curve=curve, losses=losses, excess=excess)
