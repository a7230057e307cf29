"""The events of a sweep, and their form in the journal.

An event is written to the journal before anything acts on it, and state changes only by applying
events, so a sweep is resumed by reading its journal. Times are seconds since the epoch, or since
the start on a simulated clock. A
change that readers must know of, another name or another meaning, needs a new `CONVERSIONS`; a new
field with a default needs none. A journal of a later version is refused: see `from_json`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from searchers import Observation, Params, Value
from trainables.contract import SUMMARY, DataSet, How, Order, Saved, last_raised, raised_line

Data = dict[str, Any]


class Conversion(NamedTuple):
    """From what one version wrote to the form of the next version.

    A sweep that goes on under a later version has events of both, so a conversion leaves what
    later versions write as it is.
    """

    event: Callable[[str, Data], Data] = lambda kind, data: data  # of an event's kind and data
    spec: Callable[[Data], Data] = lambda data: data  # of a frozen spec


CONVERSIONS: tuple[Conversion, ...] = ()  # the n-th is from version n to n + 1
VERSION = 1 + len(CONVERSIONS)

DriverState = Literal["alive", "dead", "none"]  # of a sweep, by its lease
LAST = "last"  # in place of a sweep's id: the newest sweep

# Why a trial failed. oversize: it ran out of memory, and half of a micro-batch may fit; diverged:
# it can't go on; timeout: it was ended for exceeding the time limit of a trial; stalled: it hung,
# mostly because of the network or a node; storage: no room to write.
Cause = Literal[
    "user", "oom", "oversize", "diverged", "timeout", "stalled", "infra", "preempt", "storage"
]
# Causes that are the trial's own fault; the others are infrastructure failures.
OWN: tuple[Cause, ...] = ("user", "oom", "oversize", "diverged", "timeout")
TIMEOUT: Cause = "timeout"
WIDER = "wider"  # reason of ending an order so that its trial goes on with more ranks; not urgent
QUEUE = "queue"  # reason of ending an order at a rung: by its share its slot is another sweep's
OUTRANKED = "a sweep of a higher priority needs its slot"  # for people
PRIORITY = "priority"  # reason of ending an order at once: a higher priority needs its slot
PATIENT = frozenset(
    {WIDER, QUEUE}
)  # reasons for which an order is not killed, however long it takes
TrialAction = Literal["continue", "pause", "park", "stop", "kill"]
SweepEnd = Literal["COMPLETED", "STOPPED", "FAILED"]
# drain: start no new trials, let the others go on as usual; pause: stop running trials at a
# checkpoint until `resume`; extend: go on with other limits; retry: try failed trials again;
# propose: train a configuration; admit: let trials have another version of the code; exclude: let a
# trial count no longer; include: let it count again
Verb = Literal[
    "stop", "drain", "kill", "pause", "extend", "retry", "propose", "admit", "exclude", "include"
]
RENEWALS: tuple[Verb, ...] = ("extend", "retry")  # requests with which an ended sweep goes on
ENDS: tuple[Verb, ...] = ("stop", "kill", "pause")  # requests that need no slots
NO_NOISE = "no noise"  # why a further seed ended: it gave the values of the first
MARKS: tuple[Verb, ...] = ("exclude", "include")  # requests about what a trial counts for
SLOTLESS: tuple[Verb, ...] = (*MARKS, "admit")  # requests that are carried out without a driver
BECAUSE = "because"  # the key of the changes that says why
NOTHING: Mapping[str, object] = {}  # no changes
# Moments that a spec's `notify` can ask for. Those of an Alert are journaled when they come; the
# sweep's own end is a moment without one.
AlertKind = Literal["new_best", "trial_failed", "plateau", "budget", "stalled"]
MomentKind = Literal["done", "failed"] | AlertKind
End = Literal[
    "trials",
    "space",
    "plateau",
    "worth",
    "drain",
    "target",
    "rule",
    "budget",
    "user",
    "failures",
]
# The ends that stop running trials as well; at the other ends they go on.
HALTS: tuple[End, ...] = ("target", "rule", "budget", "user", "failures")


@dataclass(frozen=True)
class Attached:
    """A driver took over the sweep; running orders of the last one are lost, but for `kept`."""

    kind: ClassVar[str] = "attached"
    time: float
    driver: str  # host:pid
    resumes: bool = True  # whether a pause is over; False: the driver only ends or pauses the sweep
    scheduler: str = ""  # name and revision, "asha 1"
    kept: tuple[int, ...] = ()  # running orders that go on: agents have them, or will
    version: int = VERSION  # of what the driver writes


@dataclass(frozen=True)
class Proposed:
    """A new trial, with the last step and the milestones of its first order."""

    kind: ClassVar[str] = "proposed"
    time: float
    trial: str
    params: Params
    note: Mapping[str, Any]
    until: int | None
    milestones: tuple[int, ...] = ()
    waited: float = 0.0  # seconds that a slot or more waited for the proposal


@dataclass(frozen=True)
class WarmStarted:
    """Trials of other sweeps as they were when this sweep began, in terms of its own space."""

    kind: ClassVar[str] = "warm_started"
    time: float
    trials: tuple[Observation, ...]  # ids are SWEEP/TRIAL; parameters and losses are this sweep's


@dataclass(frozen=True)
class Ordered:
    """A slot or an agent got an order."""

    kind: ClassVar[str] = "ordered"
    time: float
    order: Order


@dataclass(frozen=True)
class Placed:
    """An order's ranks are up: the model of their device, and their node.

    Several models, or nodes, of one order are joined by " + ". A backend that does not know writes
    no such event.
    """

    kind: ClassVar[str] = "placed"
    time: float
    order: int
    trial: str
    device: str  # model of the GPU, or of the CPU in a sweep without GPUs; empty: unknown
    node: str = ""
    market: str = ""  # spot, or on-demand, if the sweep asks for one; empty: any
    unmeasured: str = ""  # what of the order's energy is not measured, and why


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
    """Metrics of a trial at a step; the first report of a step stands."""

    kind: ClassVar[str] = "reported"
    time: float
    order: int
    trial: str
    step: int
    metrics: Mapping[str, float]
    # What values were that are no numbers, by the metric's name; each name once in an order.
    left_out: Mapping[str, str] = field(default_factory=dict)
    energy_kwh: float | None = None  # of the order so far, on all ranks; None: not measured


@dataclass(frozen=True)
class Described:
    """The data sets of a trial; the first description of a trial stands."""

    kind: ClassVar[str] = "described"
    time: float
    order: int
    trial: str
    data: tuple[DataSet, ...]


@dataclass(frozen=True)
class Suggested:
    """A trial decided the value of a parameter that its sweep lacks, while it ran.

    An order that goes on with the trial decides the same again.
    """

    kind: ClassVar[str] = "suggested"
    time: float
    order: int
    trial: str
    name: str
    value: Value
    domain: Mapping[str, Any]  # what the value is from, as a spec declares it


@dataclass(frozen=True)
class Decided:
    """The controller's decision at a milestone of a trial, or to end it at another time.

    `pause` leaves a trial to its scheduler; `park` only takes its slot away for a while.
    """

    kind: ClassVar[str] = "decided"
    time: float
    trial: str
    order: int | None  # None: the trial has no slot
    step: int
    verdict: TrialAction
    reason: str  # a word: rung, diverged, target, budget, user
    detail: str = ""  # the figures behind the decision, for people
    whole: bool = False  # the whole sweep ends: if that is taken back, the trial goes on


@dataclass(frozen=True)
class Ended:
    """The ranks let go of an order: its steps are done, or they were told to stop."""

    kind: ClassVar[str] = "ended"
    time: float
    order: int
    trial: str
    how: How = ""
    # Parameters that its trainable had not asked for; None: unknown, or no objective of Optuna.
    unused: tuple[str, ...] | None = None
    warning: str = ""  # of its reports: a step told again, a checkpoint not asked for
    energy_kwh: float | None = None  # of the order, as far as its ranks could say


@dataclass(frozen=True)
class Failed:
    """An order failed; `message` is for people, and its last line names the error."""

    kind: ClassVar[str] = "failed"
    time: float
    order: int
    trial: str
    cause: Cause
    message: str
    damaged: bool = False  # the checkpoint to start from can't be used
    # Every trial would fail like this: reports lack the sweep's metric, or none came.
    whole: bool = False
    crashed: bool = False  # a process of the order ended itself, by an exit status or a fault
    energy_kwh: float | None = None  # of the order, as far as its ranks could say


@dataclass(frozen=True)
class Requested:
    """A user's request to steer the sweep, or one of its trials."""

    kind: ClassVar[str] = "requested"
    time: float
    verb: Verb
    trial: str | None = None
    # Of `extend`: dotted key to value; of `propose`: the configuration; of `admit`: git's hash by
    # the version's name; of `exclude`: why.
    changes: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""  # user@host
    refused: str = ""  # why the request came to nothing: another one came before it


@dataclass(frozen=True)
class RetryDue:
    """The retry backoff of an infrastructure failure has elapsed."""

    kind: ClassVar[str] = "retry_due"
    time: float
    trial: str


@dataclass(frozen=True)
class StorageExhausted:
    """The disk is full, or nearly full: the sweep pauses until somebody frees some room."""

    kind: ClassVar[str] = "storage_exhausted"
    time: float
    detail: str  # for people: the failed write, or a folder and how much room is free there


@dataclass(frozen=True)
class Closed:
    """No new trials from now on; for some reasons (HALTS) running ones stop too."""

    kind: ClassVar[str] = "closed"
    time: float
    reason: End
    detail: str = ""  # for people: what a rule of the user's says, what more trials promise


@dataclass(frozen=True)
class Suspended:
    """The driver let go of a sweep that a user paused, or that has no room to write."""

    kind: ClassVar[str] = "suspended"
    time: float
    reason: str = "user"


@dataclass(frozen=True)
class Finished:
    """The sweep is over."""

    kind: ClassVar[str] = "finished"
    time: float
    state: SweepEnd
    reason: str


@dataclass(frozen=True)
class Alerted:
    """A moment has come that the spec's `notify` asks for."""

    kind: ClassVar[str] = "alerted"
    time: float
    what: AlertKind
    text: str  # for people
    # The threshold passed: trials of a plateau, share of the budget, seconds of a stall; else 0.
    at: float = 0.0
    trial: str | None = None
    value: float | None = None  # of a new best trial, with one metric


Event = (
    Attached
    | WarmStarted
    | Proposed
    | Ordered
    | Placed
    | Checkpointed
    | Reported
    | Described
    | Suggested
    | Decided
    | Ended
    | Failed
    | Requested
    | RetryDue
    | StorageExhausted
    | Closed
    | Suspended
    | Finished
    | Alerted
)
BackendEvent = Placed | Checkpointed | Reported | Described | Suggested | Ended | Failed

_TYPES: dict[str, type[Event]] = {event_type.kind: event_type for event_type in get_args(Event)}
EVENT_KINDS: tuple[str, ...] = tuple(_TYPES)
_ENCODER = json.JSONEncoder(default=vars, separators=(",", ":"))


# The class of our own errors, which says less than their text.
OURS = re.compile(r"^trainables(\.\w+)+: ")
RANK = re.compile(r"(rank \d+ of \d+):\n")  # heads the message of one of several ranks


def error_line(message: str) -> str:
    """Return the line of a failure's message that says what went wrong.

    If the message ends in a traceback, this is the first line of its exception, otherwise the last
    line; that of our own summary, if there is one. The failing rank stands before it.
    """
    rank = RANK.match(message)
    lines = [line.strip("\r\n") for line in message.splitlines() if line.strip()] or [""]
    said = max((at for at, line in enumerate(lines) if line.startswith(SUMMARY)), default=-1)
    raised = last_raised(lines[said + 1 :])
    line = raised_line(lines) if raised else lines[said]  # the last, if nothing is said
    line = OURS.sub("", line.strip().removeprefix(SUMMARY.strip()).strip())
    return f"{rank[1]}: {line}" if rank and line != rank[1] else line


class UnknownEvent(ValueError):
    """The journal holds an event that this version does not know."""

    exit_code = 2  # of the command line: bad usage


class DamagedEvent(UnknownEvent):
    """The journal holds what no version writes."""

    exit_code = 5  # of the command line: the store is no journal


def to_json(event: Event) -> str:
    """Return the event's fields but for kind and time, which are columns of the journal."""
    body = {name: value for name, value in vars(event).items() if name != "time"}
    if isinstance(event, Reported) and not event.left_out:
        del body["left_out"]  # of most reports, which are most of a journal
    if body.get("energy_kwh", 0.0) is None:
        del body["energy_kwh"]
    return _ENCODER.encode(body)


def from_json(kind: str, time: float, body: str) -> Event:
    """Return the event that `to_json` wrote.

    Raises:
        UnknownEvent: a later version wrote the journal.
        DamagedEvent: nobody wrote this.
    """
    event_type = _TYPES.get(kind)
    if event_type is None:
        raise UnknownEvent(_unknown(f"event kind {kind!r}"))
    try:
        values = json.loads(body)
    except (TypeError, ValueError) as error:
        message = f"journal: an event of kind {kind!r} is damaged; hposvc doctor says what is whole"
        raise DamagedEvent(message) from error
    try:
        for conversion in CONVERSIONS:
            values = conversion.event(kind, values)
        event = _restored(event_type, time, values)
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownEvent(_unknown(f"what stands in an event of kind {kind!r}")) from error
    if isinstance(event, Attached) and event.version > VERSION:
        raise UnknownEvent(_unknown(f"version {event.version}"))
    return event


def order_of(event: Event) -> int | None:
    """Return the id of the order that an event is about; None: it is about none."""
    return event.order.id if isinstance(event, Ordered) else getattr(event, "order", None)


def _unknown(what: str) -> str:
    return (
        f"journal: {what} is unknown here (this hposvc reads version {VERSION}); "
        "install the one that wrote this journal, or a later one"
    )


def _restored(event_type: type[Event], time: float, values: dict[str, Any]) -> Event:
    if event_type is Ordered:
        order = values["order"]
        start = order.pop("start")
        milestones = tuple(order.pop("milestones"))
        saved = None if start is None else Saved(**start)
        return Ordered(time, Order(**order, start=saved, milestones=milestones))
    if event_type is Checkpointed:
        values["saved"] = Saved(**values["saved"])
    if event_type is Described:
        values["data"] = tuple(DataSet(**fields) for fields in values["data"])
    if event_type is Attached:
        values["kept"] = tuple(values["kept"])
    if event_type is Proposed:
        values["milestones"] = tuple(values["milestones"])
    if values.get("unused") is not None:
        values["unused"] = tuple(values["unused"])
    if event_type is WarmStarted:
        values["trials"] = tuple(map(_observation, values["trials"]))
    return event_type(time=time, **values)


def _observation(body: dict[str, Any]) -> Observation:
    curve, *curves = (
        tuple((step, loss) for step, loss in points)
        for points in (body.pop("curve"), *body.pop("curves"))
    )
    losses, excess = tuple(body.pop("losses")), tuple(body.pop("excess"))
    repeats = tuple((step, loss) for step, loss in body.pop("repeats"))
    return Observation(
        **body,
        curve=curve,
        curves=tuple(curves),
        losses=losses,
        excess=excess,
        repeats=repeats,
    )
