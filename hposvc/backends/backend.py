"""The interface of backends, which carry out orders: on Ray, in this process, or simulated."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from hposvc.events import (
    OWN,
    BackendEvent,
    Cause,
    Checkpointed,
    Described,
    Ended,
    Failed,
    Placed,
    Reported,
    Suggested,
)
from hposvc.journal.home import VARIANTS
from hposvc.queue.claim import Amounts, Held, Placement
from hposvc.queue.gangs import Nodes
from hposvc.queue.shares import SlotShare
from hposvc.spec import SweepSpec
from hposvc.spec.metrics import ENERGY
from hposvc.spec.paths import checkpoints_url
from hposvc.spec.serving import restarts
from hposvc.spec.variants import for_ranks
from trainables.contract import (
    CheckpointSaved,
    Command,
    DataDeclared,
    Order,
    OrderMessage,
    OrderPlaced,
    Outcome,
    Server,
    SlotConfig,
    Suggestion,
)

if TYPE_CHECKING:
    from hposvc.journal.agents import AgentMailbox

# yield: the order ends here, but its trial is to go on later
Answer = Literal["continue", "yield", "stop"]


@dataclass(frozen=True)
class Setting:
    """The sweep that a backend works for, and how to reach its cluster, files and code."""

    sweep: str
    spec: SweepSpec
    folder: Path  # the sweep's own, with checkpoints/ and logs/
    home: Path
    address: str | None = None  # of a Ray cluster; None: Ray on this machine
    clock: float = 0.0  # the last event's time; a simulated clock continues from there
    # Environment variables of every rank.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    runtime_env: Mapping[str, object] = field(default_factory=dict)  # prepared by Ray on each node
    # Checksums of the trainable's source files.
    code: Mapping[str, str] = field(default_factory=dict)
    mailbox: "AgentMailbox | None" = None  # the exchange with agents; None: there is none
    journal: str = ""  # tells the sweeps of one journal from those of others
    owner: str = ""  # who submitted the sweep, or runs it; empty: unknown
    # Shows the user what it waits for.
    say: Callable[[str], None] = field(default=lambda text: None, repr=False)
    # When the driver began, by the wall clock and in monotonic seconds.
    begun: tuple[float, float] = field(default_factory=lambda: (time.time(), time.monotonic()))

    def now(self) -> float:
        """Return the driver's time: its begin by the wall clock, and monotonic seconds since.

        Never before the last event's, as a wall clock that jumps must not change how long a trial
        or a sweep ran, or when a retry is due.
        """
        wall, monotonic = self.begun
        return max(wall, self.clock) + time.monotonic() - monotonic

    def slot_config(self) -> SlotConfig:
        """Return the configuration of a slot, which all its ranks receive."""
        spec = self.spec
        return SlotConfig(
            trainable=spec.trainable or "",
            training=spec.training,
            metrics=tuple(one.name for one in spec.objectives if one.name != ENERGY),
            total=spec.last_step,
            unit="epoch" if spec.fidelity is None else spec.fidelity.unit,
            interval=1 if spec.fidelity is None else spec.fidelity.interval,
            every=spec.checkpoints.interval,
            seed=spec.seed,
            folder=self.folder,
            world_size=spec.resources.ranks,
            gpu=spec.resources.gpus_per_worker > 0,
            gpu_share=min(spec.resources.gpus_per_worker, 1.0) or 1.0,
            storage=checkpoints_url(self.sweep, spec.storage),
            stall_s=spec.failure.stall,
            path=tuple(f"{Path(folder).absolute()}" for folder in sys.path),
            command=_command(spec),
            variants=for_ranks(spec, self.folder / VARIANTS),
            memory=spec.resources.memory_per_worker,
            nan=spec.failure.nan,
            datasets=spec.datasets,
            variables=spec.environment.env,
            secrets=self.secrets,
            needs_energy=spec.needs_energy,
            works_in=spec.works_in,
            code=self.code,
        )


def _command(spec: SweepSpec) -> Command | None:
    if spec.command is None:
        return None
    pattern = None if spec.collect is None else spec.collect.stdout
    limits = dict.fromkeys(limit.metric for limit in spec.bounds if limit.metric != ENERGY)
    command = Command(spec.command, spec.launch, pattern, spec.failure.grace, tuple(limits))
    if (serve := spec.serve) is None:
        return command
    server = Server(serve.command, serve.ready, restarts(spec, serve), serve.start_timeout)
    return replace(command, server=server, price=spec.money(3600))


def to_events(message: OrderMessage, trial: str, now: float) -> list[BackendEvent]:
    """Translate a message about an order of a trial into events for the journal."""
    order = message.order
    match message:
        case CheckpointSaved():
            return [Checkpointed(now, order, trial, message.saved)]
        case OrderPlaced():
            return [Placed(now, order, trial, message.device, message.node, "", message.unmeasured)]
        case DataDeclared():
            return [Described(now, order, trial, message.data)]
        case Suggestion():
            return [Suggested(now, order, trial, message.name, message.value, message.domain)]
        case Outcome(kind="ended"):
            end = message.how, message.unused, message.warning, message.energy_kwh
            return [Ended(now, order, trial, *end)]
        case Outcome():
            causes: tuple[Cause, ...] = (*OWN, "stalled", "storage", "preempt")
            # Any other kind counts as `infra`.
            cause: Cause = next((own for own in causes if own == message.kind), "infra")
            damaged, whole = message.kind == "damaged", message.sweep_wide
            facts = damaged, whole, message.crashed, message.energy_kwh
            return [Failed(now, order, trial, cause, message.message, *facts)]
    told = message.step, message.metrics, message.left_out, message.energy_kwh
    report = Reported(now, order, trial, *told)
    saved = message.checkpoint
    return [report] if saved is None else [Checkpointed(now, order, trial, saved), report]


class Backend(Protocol):
    """Carries out orders in slots and reports everything that happens through `events`.

    The driver calls `start` only while `capacity` is above 0. After `close` no process and no
    reserved resource is left.
    """

    # Whether time is simulated, and nothing outside this process is touched.
    virtual: ClassVar[bool] = False
    setting: Setting

    def now(self) -> float:
        """Return the time on this backend's clock, in seconds."""
        return self.setting.now()

    def capacity(self) -> int:
        """Return how many more orders can start now, in slots that are ready."""

    def slots(self) -> int:
        """Return how many orders can run at once when all slots are up."""

    def start(self, order: Order, environment: dict[str, str]) -> None:
        """Carry out an order; only rank 0 sees the environment."""

    def decide(self, order: int, verdict: Answer) -> None:
        """Pass a decision to the order's ranks: at a milestone, or an end at any time."""

    def kill(self, order: int) -> None:
        """Kill an order without asking its ranks; `Ended` follows when they are gone."""

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        """Set how many orders run at once (a new `trials.parallel`); `auto`: as many as fit."""

    def set_slot_limit(self, slots: int) -> int:
        """Keep at most `slots` slots; idle slots beyond that release their resources.

        Returns:
            The number of ranks of each new slot. For elastic trials, the largest number with
            which `slots` slots fit into the cluster at once.
        """

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        """Return what has happened; wait at most `timeout_s` seconds for the first event."""

    def close(self) -> None:
        """Kill everything, and return when all of it is gone."""


@runtime_checkable
class Lasting(Protocol):
    """A backend whose orders outlive the driver: agents have them, or will get them."""

    def adopt(self, orders: Sequence[tuple[Order, int]]) -> tuple[int, ...]:
        """Take over the orders of an earlier driver; nothing is written yet.

        Args:
            orders: that run as far as the journal says, each with its trial's last step.

        Returns:
            The numbers of those that go on; the others are lost.
        """

    def delivered(self) -> Sequence[int]:
        """Return the numbers of the messages behind the events of the last call of `events`.

        They are deleted in the transaction that writes these events.
        """


@dataclass(frozen=True)
class SlotNeeds:
    """Resources, ranks and nodes that a new slot of a sweep needs."""

    needs: Amounts  # of a rank
    ranks: int
    placement: Placement
    nodes: tuple[str, ...] | None  # on which its ranks may be; None: on any
    text: str  # for people: 2 CPU and 1 GPU


@runtime_checkable
class OnSharedCluster(Protocol):
    """A backend whose slots are on a cluster that other sweeps use too."""

    @property
    def answers(self) -> bool:
        """Whether the cluster can be asked for something now."""

    def cluster(self) -> str:
        """Return the cluster's id, the same for all sweeps on it."""

    def room(self) -> tuple[Nodes, Nodes]:
        """Return the resources of each live node, and what nobody holds of them now."""

    def new_slot(self) -> SlotNeeds:
        """Return what a new slot needs, with the fewest ranks."""

    def held(self) -> Sequence[tuple[Held, Sequence[int]]]:
        """Return the slots that hold resources, each with the numbers of its orders."""

    def apply_share(self, share: SlotShare, waiting: str, missing: int) -> None:
        """Follow the sweep's share.

        Args:
            waiting: what the sweep waits for, to be shown while it has no slot; empty: nothing.
            missing: slots beyond the share for which new nodes are to be asked for.
        """

    def interrupt(self, order: int) -> None:
        """End an order at its next step, or before, where its state is saved; then its slot."""
