"""A rank that carries out several orders, each in a thread; one thread works at a time."""

import gc
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables.errors import encodable, text_of
from trainables.link import Link, Report, Unanswered
from trainables.lora.base import keep_bases, kept_weights
from trainables.order import Order
from trainables.runtime import process_state
from trainables.runtime.assignment import (
    Assignment,
    Outcome,
    RankContext,
    SlotConfig,
    failed,
    log_file,
    make_outcome,
    train,
)
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
from trainables.runtime.links import CurrentOrder, carry_out_linked
from trainables.runtime.output import open_log, redirect_output
from trainables.runtime.preemption import SigtermHandler
from trainables.runtime.wire import Beat, CoordinatorConnection, PreemptionNotice
from trainables.sharing.shared_base import SharedBase
from trainables.sharing.turns import FollowedTurns, OwnState, Turns
from trainables.stop_signals import SIGTERM_TEXT, Notice

if TYPE_CHECKING:
    from trainables.parallel.group import RankStore

ALL_ORDERS = 0  # the order that a beat of all orders names: theirs begin at 1
MEMORY = ("oom", "oversize")  # kinds of outcomes of orders for which memory was short


@dataclass(eq=False)
class Lane:
    """A place for one order, and where the ranks meet that carry it out."""

    coordinator: CoordinatorConnection
    store: "RankStore | None"  # None: there is one rank
    order: Order | None = None
    signals: LivenessSignals = field(default_factory=LivenessSignals)


@dataclass(frozen=True)
class _OrderSharing:
    """What an order shares with the others; see `trainables.worker.Sharing`."""

    turns: Turns
    own: OwnState
    base: SharedBase

    def pass_turn(self) -> None:
        self.turns.pass_on(self.own)

    def share_model(self, model: nn.Module) -> None:
        self.base.share(model)

    def shared(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.base.shared(tensors)


@dataclass(frozen=True)
class _TurnLink:
    """The link of an order, which leaves its turn to others while it waits for an answer."""

    link: Link
    turns: Turns
    own: OwnState

    def exchange(self, report: Report) -> bool:
        with self.turns.left(self.own):
            return self.link.exchange(report)

    def tell(self, message: Unanswered) -> None:
        self.link.tell(message)

    def beat(self) -> None:
        self.link.beat()

    def once(self, name: str, work: Callable[[], str]) -> str:
        return self.link.once(name, work)


@dataclass
class _Signs:
    """The signs of life of all lanes, as the heartbeat reads those of one order."""

    lanes: Sequence[Lane]

    @property
    def given(self) -> bool:
        return any(lane.signals.given for lane in self._busy())

    @given.setter
    def given(self, value: bool) -> None:
        for lane in self._busy():
            lane.signals.given = value

    @property
    def beats(self) -> bool:
        return any(lane.signals.beats for lane in self._busy())

    @property
    def waits(self) -> bool:
        return all(lane.signals.waits for lane in self._busy())

    def _busy(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.order is not None]


class Lanes:
    """Carry out the coordinator's orders, one in each lane, until it is gone.

    Args:
        log: the file for output outside of orders.
        watchers: threads whose work is no sign of life.
    """

    def __init__(
        self,
        rank: int,
        config: SlotConfig,
        lanes: Sequence[Lane],
        log: Path,
        watchers: Sequence[threading.Thread],
    ) -> None:
        self.lanes = lanes
        self._rank, self._config, self._log = rank, config, log
        self._turns, self._base = _turns(lanes[0].store), SharedBase()
        self._most = len(self.lanes)  # orders that work at once; fewer once memory was short
        self._waiting: deque[tuple[Lane, Assignment]] = deque()  # beyond these
        self._working = 0
        self._ended: deque[tuple[Lane, Outcome]] = deque()
        self._bell, self._ring = Pipe(duplex=False)  # rung when an order has ended
        self._heartbeat = Heartbeat(config.stall_s, self._beat, True, watchers)

    def serve(self) -> None:
        """Carry out orders.

        Raises:
            EOFError, OSError: the coordinator is gone.
        """
        keep_bases()
        sigterm, store = SigtermHandler(self._notify), self.lanes[0].store
        with nullcontext() if store is None else store.group(0):  # of all orders
            while True:
                wait([lane.coordinator.connection for lane in self.lanes])
                with (
                    sigterm.during(ALL_ORDERS),
                    redirect_output(self._log, self._config.secrets.values()) as file,
                    self._heartbeat.during(ALL_ORDERS, _Signs(self.lanes), file),
                ):
                    self._work(sigterm.notice)

    def _work(self, notice: Notice) -> None:
        """Carry out all orders that come while there is any."""
        before = self._state()
        while True:
            idle = [lane.coordinator.connection for lane in self.lanes if lane.order is None]
            for connection in wait([*idle, self._bell]):
                if connection is self._bell:
                    self._bell.recv_bytes()
                else:
                    lane = next(o for o in self.lanes if o.coordinator.connection is connection)
                    assignment: Assignment = lane.coordinator.receive()
                    lane.order, lane.signals = assignment.order, LivenessSignals()
                    self._waiting.append((lane, assignment))
            while self._waiting and self._working < self._most:
                self._begin(*self._waiting.popleft(), notice)
            while self._ended:
                lane, outcome = self._ended.popleft()
                self._working -= 1
                if not self._working and not self._waiting and not self._ended:
                    leaks = process_state.restore(before)
                    leaks += process_state.difference(before, self._state())
                    leaks += [f"it {SIGTERM_TEXT}"] * notice.given
                    outcome = replace(outcome, leaks=tuple(map(encodable, leaks)))
                lane.order = None
                lane.coordinator.send(outcome)
            if not self._working and not self._waiting:
                return

    def _begin(self, lane: Lane, assignment: Assignment, notice: Notice) -> None:
        self._working += 1
        work = partial(self._in_turns, lane)
        current = CurrentOrder(lane.coordinator, assignment, lane.signals, notice, work)
        name = f"order-{assignment.order.id}"
        run = partial(self._carry_out, lane, current)
        threading.Thread(target=run, name=name, daemon=True).start()

    def _carry_out(self, lane: Lane, current: CurrentOrder) -> None:
        """Carry out an order, in a thread of its own."""
        try:
            outcome = carry_out_linked(self._config, self._rank, current, lane.store)
        except BaseException as error:  # noqa: BLE001 - its log can't be written, say
            order = current.assignment.order
            outcome = make_outcome(self._config, order, "infra", text_of(error))
        self._ended.append((lane, outcome))
        self._ring.send_bytes(b"")

    def _in_turns(
        self,
        lane: Lane,
        config: SlotConfig,
        assignment: Assignment,
        rank: int,
        link: Link,
        context: RankContext,
    ) -> Outcome:
        order = assignment.order
        log = log_file(config.folder, order.trial, order.id, rank)
        with open_log(log, config.secrets.values()) as (_, target):
            own = OwnState(order.id, torch.device("cuda:0" if config.gpu else "cpu"), target)
            sharing = _OrderSharing(self._turns, own, self._base)
            context = replace(context, sharing=sharing)
            with self._turns.taken(own):
                try:
                    return train(config, order, rank, _TurnLink(link, self._turns, own), context)
                except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
                    return self._failed(order, error)
                finally:
                    gc.collect()  # a model and its optimizer may refer to each other

    def _failed(self, order: Order, error: BaseException) -> Outcome:
        """Return the outcome of a failed order; if memory was short, fewer work from now on."""
        outcome = failed(self._config, order, error)
        if outcome.kind not in MEMORY or self._working == 1:
            return outcome
        self._most = min(self._most, self._working - 1)
        text = f"{self._working} trials at once did not fit into memory; from now on {self._most}"
        return replace(outcome, kind="collateral", message=f"{text}: {outcome.message}")

    def _state(self) -> process_state.State:
        """Return the process's state, without the base that it keeps."""
        state = process_state.baseline(self._config.gpu_share, keeps_group=True)
        kept = sum(weight.nbytes for weight in kept_weights() if weight.is_cuda)
        return replace(state, device_bytes=state.device_bytes - kept)

    def _notify(self, _: int) -> None:
        for lane in self.lanes:
            if (order := lane.order) is not None:
                lane.coordinator.send(PreemptionNotice(order.id))

    def _beat(self, _: int) -> None:
        for lane in self.lanes:
            if (order := lane.order) is not None:
                lane.coordinator.send(Beat(order.id))


def _turns(store: "RankStore | None") -> Turns:
    """Return this rank's turns: rank 0 chooses them, and the others follow."""
    if store is None:
        return Turns()
    if store.rank == 0:
        return Turns(store.publish_turn)
    turns = FollowedTurns()
    threading.Thread(target=turns.follow, args=(store.turns(),), name="turns", daemon=True).start()
    return turns
