"""What carries out orders: real ranks on Ray, one process, or a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from hposvc.events import (
    OWN,
    BackendEvent,
    Cause,
    Checkpointed,
    Described,
    Ended,
    Failed,
    Order,
    Reported,
)
from hposvc.home import checkpoints_url
from hposvc.spec import SweepSpec
from trainables.scripts.command import Command
from trainables.slots.assignment import Assignment, Outcome, Place
from trainables.slots.wire import Finished, Kept, Used
from trainables.slots.wire import Reported as Heard

Answer = Literal["continue", "stop"]


class OutOfReach(Exception):
    """The cluster can't be reached, or can never give what the spec asks for (exit code 5)."""


@dataclass(frozen=True)
class Setting:
    """What a backend must know of the sweep that it works for."""

    sweep: str
    spec: SweepSpec
    folder: Path  # of the sweep: checkpoints/, logs/
    home: Path
    address: str | None = None  # of a Ray cluster; None: the one of this machine
    clock: float = 0.0  # the last event's time: a simulated clock goes on from there
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # for every rank to see
    runtime_env: Mapping[str, object] = field(default_factory=dict)  # for Ray to prepare

    def place(self) -> Place:
        """What the ranks of every slot must know of it."""
        spec = self.spec
        return Place(
            trainable=spec.trainable or "",
            training=spec.training,
            metrics=tuple(metric.name for metric in spec.objectives),
            total=spec.last_step,
            every=spec.checkpoints.interval,
            seed=spec.seed,
            folder=self.folder,
            world_size=spec.resources.ranks,
            gpu=spec.resources.gpus_per_worker > 0,
            storage=checkpoints_url(self.sweep, spec.storage),
            stall_s=spec.failure.stall,
            command=_command(spec),
            nan=spec.failure.nan,
            variables=spec.environment.env,
            secrets=self.secrets,
        )


def _command(spec: SweepSpec) -> Command | None:
    if spec.command is None:
        return None
    pattern = None if spec.collect is None else spec.collect.stdout
    limited = tuple(dict.fromkeys(limit.metric for limit in spec.bounds))
    return Command(spec.command, spec.launch, pattern, spec.failure.grace, limited)


def assignment(order: Order, environment: dict[str, str]) -> Assignment:
    """The order as the ranks get it; rank 0 sees the environment."""
    return Assignment(
        order.id,
        order.trial,
        order.params,
        order.start,
        order.first,
        order.until,
        order.milestones,
        environment,
        order.seed_of,
        order.shrink,
    )


def events_of(message: Heard | Kept | Used | Finished, now: float) -> list[BackendEvent]:
    """What a leader's word about an order means."""
    if isinstance(message, Kept):
        return [Checkpointed(now, message.order, message.trial, message.saved)]
    if isinstance(message, Used):
        return [Described(now, message.order, message.trial, message.data)]
    if isinstance(message, Heard):
        order, trial, step, metrics, saved = message
        report = Reported(now, order, trial, step, metrics)
        return [report] if saved is None else [Checkpointed(now, order, trial, saved), report]
    order, trial, failure, _, _ = message
    if failure is None:
        return [Ended(now, order, trial)]
    return [failed(now, order, trial, failure)]


def failed(now: float, order: int, trial: str, outcome: Outcome) -> Failed:
    """What the outcome of an order that did not end says to the journal."""
    told: tuple[Cause, ...] = (*OWN, "stalled", "storage", "preempt")
    cause: Cause = next((each for each in told if each == outcome.kind), "infra")
    return Failed(now, order, trial, cause, outcome.message, outcome.kind == "damaged")


class Backend(Protocol):
    """Orders go to `start` only while `capacity` says that a slot is ready.

    Everything that happens comes out of `events`. After `close` nothing of it is left: no process,
    no reserved resource.
    """

    virtual: ClassVar[bool]  # nothing outside this process is touched, and time is simulated

    def now(self) -> float:
        """The time on this backend's clock, seconds."""

    def capacity(self) -> int:
        """Slots that are ready and idle."""

    def slots(self) -> int:
        """Orders that can run at once when all slots are up."""

    def start(self, order: Order, environment: dict[str, str]) -> None:
        """Carry out an order; rank 0 sees the environment."""

    def decide(self, order: int, verdict: Answer) -> None:
        """Pass a decision to the ranks: at a milestone, or `stop` at any time."""

    def kill(self, order: int) -> None:
        """End an order without asking its ranks; `Ended` follows when they are gone."""

    def allow(self, parallel: int | Literal["auto"]) -> None:
        """Carry out so many orders at once, as `trials.parallel` now says; or as many as fit."""

    def limit(self, slots: int) -> int:
        """Keep at most so many slots; idle ones beyond it give their resources back.

        Returns:
            The ranks of each new one: where trials take from so many to so many, the most with
            which that many slots have room at once.
        """

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        """What happened; waits at most `timeout_s` for the first."""

    def close(self) -> None:
        """End everything, and return when it is gone."""
