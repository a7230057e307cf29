"""A rank that carries out several orders in turns: each has an update, then the next one.

Each order runs in a greenlet of its own, all of them on the main thread, as an order that is alone:
so torch's settings and pools of that thread serve for all. An order leaves its turn between two
updates, and while it waits for an answer. The ranks of a slot have their turns in one order, which
rank 0 chooses and the others follow: otherwise two ranks would wait for each other in the
collectives of two trials.
"""

import gc
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn

from trainables.environment import MMAP_BYTES, map_from
from trainables.errors import encodable, text_of
from trainables.link import Link, Report
from trainables.lora.base import keep_bases, kept_weights
from trainables.monitoring import energy
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
from trainables.sharing.joint_passes import JointModel, JointPasses
from trainables.sharing.own_state import OwnState
from trainables.sharing.shared_base import SharedBase
from trainables.sharing.vmapped_steps import VmappedSteps
from trainables.sharing.wanted import Maker, PassedOn, TooManyTrials, Wanted
from trainables.stop_signals import SIGTERM_TEXT, Notice
from trainables.task import Task
from trainables.trainer.forward_backward import run_backward
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.parallel.group import RankStore

ALL_ORDERS = 0  # the order that a beat of all orders names: theirs begin at 1
MEMORY = ("oom", "oversize")  # kinds of outcomes of orders for which memory was short
# Bytes from which memory gets a mapping of its own outside of passes. What stays is kept apart from
# activations so: amid these, each trial's adapters and moments had cut the heap to pieces.
MAPPED = 16 << 10
AWAITED = "an answer"  # what an order says that leaves its turn until its connection has one


def leave_turn(until: str | Wanted = "") -> None:
    """Let other orders have their turns, and go on at the next one of this order.

    Args:
        until: what has to come before.
    """
    hub = getcurrent().parent
    assert hub is not None  # an order runs in a greenlet
    hub.switch(until)


@dataclass(frozen=True)
class _OrderConnection(CoordinatorConnection):
    """An order's connection to the coordinator: it leaves its turn while it waits."""

    lane: "Lane" = field(kw_only=True)

    def receive(self) -> Any:
        leave_turn(AWAITED)
        return self.lane.answer


@dataclass
class _FollowingLink(PassedOn):
    """A follower's link: it leaves its turn where rank 0 does, which waits for an answer."""

    order: Order

    def exchange(self, report: Report) -> bool:
        if self.order.needs_answer(report.step):
            leave_turn()
        return self.link.exchange(report)


@dataclass
class _OrderSharing:
    """What an order shares with the others; see `trainables.worker.Sharing`."""

    base: SharedBase
    own: OwnState
    maker: Maker | None
    model: JointModel | None = None

    def fit(self, task: Task, worker: Worker) -> bool:
        return False

    def pass_turn(self) -> None:
        leave_turn()

    @contextmanager
    def in_pass(self) -> Iterator[None]:
        map_from(MMAP_BYTES)
        try:
            yield
        finally:
            map_from(MAPPED)

    def share_model(self, model: nn.Module) -> None:
        self.base.share(model)

    def joined(self, model: nn.Module) -> nn.Module:
        if not isinstance(self.maker, JointPasses):
            return model
        self.model = JointModel(model, self.own, leave_turn)
        return self.model

    def backward(self, roots: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
        (run_backward if self.model is None else self.model.backward)(roots, gradients)

    def shared(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.base.shared(tensors)


@dataclass
class _VmappedSharing(_OrderSharing):
    """What an order shares that makes its steps at once with others."""

    def fit(self, task: Task, worker: Worker) -> bool:
        assert isinstance(self.maker, VmappedSteps)
        self.maker.train(task, worker, leave_turn)
        return True

    def pass_turn(self) -> None:
        """Do nothing: a step that the trainer makes alone is to be finished."""

    def share_model(self, model: nn.Module) -> None:
        """Do nothing: the weights of all trials are rows of one tensor."""


@dataclass(eq=False)
class Lane:
    """A place for one order, and where the ranks meet that carry it out."""

    coordinator: CoordinatorConnection
    store: "RankStore | None"  # None: there is one rank
    order: Order | None = None
    signals: LivenessSignals = field(default_factory=LivenessSignals)
    course: greenlet | None = None  # None: the order has not begun
    own: OwnState | None = None  # of an order that has begun
    awaits: bool = False  # an answer
    answer: Any = None  # the last one
    wanted: Wanted | None = None  # that it waits for

    @property
    def connection(self) -> Any:
        """The connection to wait for."""
        return self.coordinator.connection


@dataclass
class _Signs:
    """The signs of life of all lanes, as the heartbeat reads those of one order."""

    lanes: Sequence[Lane]
    works: bool = False  # something is made that orders wait for

    @property
    def given(self) -> bool:
        return any(lane.signals.given for lane in self._busy())

    @given.setter
    def given(self, value: bool) -> None:
        for lane in self._busy():
            lane.signals.given = value

    @property
    def beats(self) -> bool:
        return all(lane.signals.beats for lane in self._busy())

    @property
    def waits(self) -> bool:
        waits = {lane.signals.waits for lane in self._busy() if lane.wanted is None}
        return waits == {True} and not self.works  # those that want something wait for these

    def _busy(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.course is not None]


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
        self._base, self._store = SharedBase(), lanes[0].store
        self._leads = rank == 0  # chooses whose turn it is
        self._line: deque[Lane] = deque()  # those whose orders can go on, next first
        self._most = len(self.lanes)  # orders that have begun; fewer once memory was short
        # What the process has between turns; it draws nothing, and its output is the slot's.
        self._idle = OwnState(torch.device("cpu"), 1, draws=False)
        self._entered = self._idle
        self._signs = _Signs(lanes)
        self._selector = DefaultSelector()
        for lane in lanes:
            self._selector.register(lane.connection, EVENT_READ, lane)
        self._maker: Maker | None = None
        if config.training.trials_per_process > 1:
            self._maker = VmappedSteps(len(lanes))
        elif config.training.joint_passes:
            self._maker = JointPasses()
        self._meter = energy.meter(config.gpu, config.gpu_share)
        self._heartbeat = Heartbeat(config.stall_s, self._beat, True, watchers)

    def serve(self) -> None:
        """Carry out orders.

        Raises:
            EOFError, OSError: the coordinator is gone.
        """
        if self._config.training.share_base > 1:
            keep_bases()
            map_from(MAPPED)
        sigterm = SigtermHandler(self._notify)
        turns = None if self._leads or self._store is None else self._store.turns()
        with nullcontext() if self._store is None else self._store.group(0):  # of all orders
            while True:
                self._selector.select()
                with (
                    sigterm.during(ALL_ORDERS),
                    redirect_output(self._log, self._config.secrets.values()) as file,
                    os.fdopen(os.dup(1), "wb", 0) as output,
                    self._heartbeat.during(ALL_ORDERS, self._signs, file),
                ):
                    self._idle.output = output.fileno()
                    self._serve_busy(sigterm.notice, turns)

    def _serve_busy(self, notice: Notice, turns: Iterator[int] | None) -> None:
        """Carry out all orders that come while there is any."""
        before = self._state()
        while True:
            lane = self._next() if turns is None else self._follow(turns)
            outcome = self._give_turn(lane, notice)
            if outcome is None:
                continue
            if self._leads and self._store is not None:
                # Another rank may have to learn in a turn of its own that this order is over.
                self._store.publish_turn(-outcome.order)
            lane.order = lane.course = lane.own = None
            if any(other.order for other in self.lanes):
                lane.coordinator.send(outcome)
                continue
            leaks = process_state.restore(before)
            leaks += process_state.difference(before, self._state())
            leaks += [f"it {SIGTERM_TEXT}"] * notice.given
            lane.coordinator.send(replace(outcome, leaks=tuple(map(encodable, leaks))))
            return

    def _next(self) -> Lane:
        """Return the lane whose order has the next turn; wait until there is one."""
        self._receive(0.0)
        while (lane := self._first_in_line()) is None:
            if not self._make():
                self._receive(None)
        if self._store is not None:
            assert lane.order is not None
            self._store.publish_turn(lane.order.id)
        return lane

    def _first_in_line(self) -> Lane | None:
        """Take the first lane out of the line whose order may go on."""
        for lane in self._line:
            begun = lane.course is not None
            if begun or sum(other.course is not None for other in self.lanes) < self._most:
                self._line.remove(lane)
                return lane
        return None

    def _make(self) -> bool:
        """Make some of what orders wait for; False: nothing can be made now."""
        waiting = [lane for lane in self.lanes if lane.wanted is not None]
        awaited = any(lane.awaits for lane in self.lanes)
        if self._maker is None or not waiting or (self._maker.for_all and awaited):
            return False
        self._enter(None)
        map_from(MMAP_BYTES)  # until an order is out of its passes
        self._signs.works = True
        made = {*self._maker.make([lane.wanted for lane in waiting])}
        self._signs.works = False
        for lane in waiting:
            if lane.wanted in made:
                lane.wanted = None
                self._queue(lane)
        return True

    def _follow(self, turns: Iterator[int]) -> Lane:
        """Return the lane of the order to which rank 0 has given the turn, or that is over there.

        Raises:
            EOFError, OSError: the coordinator is gone.
        """
        for turn in turns:
            while (lane := self._lane_of(abs(turn))) is None and turn > 0:
                self._receive(None)
            if lane is not None:
                return lane
        while True:  # rank 0 is gone; the coordinator ends the other ranks
            self._receive(None)

    def _lane_of(self, order: int) -> Lane | None:
        lanes = (lane for lane in self.lanes if lane.order is not None and lane.order.id == order)
        return next(lanes, None)

    def _receive(self, timeout_s: float | None) -> None:
        """Take in what the coordinator has sent: orders, and answers that are waited for."""
        for key, _ in self._selector.select(timeout_s):
            lane: Lane = key.data
            message = lane.coordinator.receive()
            if lane.awaits:
                lane.answer = message
            else:
                assert isinstance(message, Assignment)
                lane.order, lane.signals = message.order, LivenessSignals()
                self._meter.begin(lane.order.id)  # as its GPU-hours, before its first turn
            self._queue(lane)

    def _give_turn(self, lane: Lane, notice: Notice) -> Outcome | None:
        """Let an order go on until it leaves its turn; return its outcome at its end."""
        if lane.course is None:
            lane.course = greenlet(partial(self._carry_out, lane, notice))
        self._enter(lane.own)
        said: Outcome | Wanted | str = lane.course.switch()
        if isinstance(said, Outcome):
            return said
        if isinstance(said, Wanted):
            lane.wanted = said
        elif said == AWAITED:
            lane.awaits = True
        else:
            self._queue(lane)
        return None

    def _enter(self, own: OwnState | None) -> None:
        """Give the process an order's state; None: no order has its turn."""
        own = own or self._idle
        if own is not self._entered:
            self._entered.leave()
            self._entered = own
            own.enter()

    def _queue(self, lane: Lane) -> None:
        """Note that the order of a lane can go on."""
        lane.awaits = False
        if self._leads:
            self._line.append(lane)

    def _carry_out(self, lane: Lane, notice: Notice) -> Outcome:
        """Carry out the order of a lane, in a greenlet of its own."""
        order, lock = lane.order, lane.coordinator._send_lock  # of whoever sends on a connection
        coordinator = _OrderConnection(lane.connection, lock, lane=lane)
        assert order is not None
        work = partial(self._work, lane)
        current = CurrentOrder(coordinator, Assignment(order), lane.signals, notice, work)
        try:
            return carry_out_linked(self._config, self._rank, current, lane.store)
        except BaseException as error:  # noqa: BLE001 - its log can't be written, say
            return make_outcome(self._config, order, "infra", text_of(error))

    def _work(
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
            device = torch.device("cuda:0" if config.gpu else "cpu")
            at_once = isinstance(self._maker, VmappedSteps)  # whose trials have generators
            lane.own = OwnState(device, target, draws=not at_once)
            self._enter(lane.own)
            link = link if rank == 0 else _FollowingLink(link, order)
            ended = False
            try:
                kind = _VmappedSharing if at_once else _OrderSharing
                sharing = kind(self._base, lane.own, self._maker)
                outcome = train(config, order, rank, link, replace(context, sharing=sharing))
                ended = True
                return outcome
            except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
                return self._failed(order, error)
            finally:
                if self._maker is not None:
                    self._maker.forget()
                if not (at_once and ended):
                    gc.collect()  # a model and its optimizer may refer to each other
                self._enter(None)

    def _failed(self, order: Order, error: BaseException) -> Outcome:
        """Return the outcome of a failed order; if memory was short, fewer go on from now on."""
        if isinstance(error, TooManyTrials):
            self._most = min(self._most, error.most)
            return make_outcome(self._config, order, "collateral", text_of(error))
        outcome = failed(self._config, order, error)
        begun = sum(lane.course is not None for lane in self.lanes)
        if outcome.kind not in MEMORY or begun == 1:
            return outcome
        self._most = min(self._most, begun - 1)
        text = f"{begun} trials at once did not fit into memory; from now on {self._most}"
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
                lane.coordinator.send(Beat(order.id, self._meter.kwh(order.id)))
