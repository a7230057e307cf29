"""A rank that carries out several orders at once by training their trials in a Batch."""

import inspect
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainables import load
from trainables.errors import encodable, out_of_memory, text_of
from trainables.link import CheckpointSaved, Report, Unanswered
from trainables.order import Order
from trainables.runtime import process_state
from trainables.runtime.assignment import (
    Outcome,
    OutcomeKind,
    SlotConfig,
    log_error,
    make_outcome,
    make_worker,
    outcome_kind,
)
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
from trainables.runtime.output import redirect_output
from trainables.runtime.preemption import SigtermHandler
from trainables.runtime.wire import CoordinatorConnection, Leave, PreemptionNotice
from trainables.stop_signals import SIGTERM_TEXT, Notice, Preempted
from trainables.storage.checkpoint import CheckpointDamaged
from trainables.task import Task
from trainables.vmapped.batch import Batch, FinishedTrial
from trainables.vmapped.refusals import Unbatchable
from trainables.vmapped.wire import ALL_ORDERS, OrderAnswer


class OrderInbox:
    """Receive the coordinator's messages: orders, answers to reports, the end of all orders."""

    def __init__(
        self, coordinator: CoordinatorConnection, signals: LivenessSignals, notice: Notice
    ) -> None:
        self.coordinator, self.signals, self.notice = coordinator, signals, notice
        self.why = f"the rank {SIGTERM_TEXT}"  # the reason if notice is given
        self._orders: queue.Queue[Order | None] = queue.Queue()  # None: no coordinator any more
        self._answers: dict[int, queue.Queue[bool]] = {}
        self._awaiting: set[int] = set()  # orders at milestones
        threading.Thread(target=self._receive_messages, name="messages", daemon=True).start()

    def wait(self) -> Order:
        """Wait for the next order.

        Raises:
            EOFError: the coordinator is gone.
        """
        order = self._orders.get()
        if order is None:
            self._orders.put(None)
            raise EOFError
        return order

    @property
    def is_empty(self) -> bool:
        """Whether no order has arrived."""
        return self._orders.empty()

    def report(self, report: Report, awaited: bool) -> bool:
        """Send a report, from any thread, and return whether its order goes on.

        Args:
            awaited: whether to wait for the controller's answer.
        """
        order = report.order
        if awaited:
            self._awaiting.add(order)
        self.signals.given, self.signals.waits = True, bool(self._awaiting)
        self.coordinator.send(report)
        try:
            return self._answers[order].get(block=awaited)
        except queue.Empty:
            return True
        finally:
            self._awaiting.discard(order)
            self.signals.waits = bool(self._awaiting)

    def forget(self, order: int) -> None:
        """Drop the answers of an order that is over."""
        self._answers.pop(order, None)

    def _receive_messages(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = self.coordinator.receive()
                if isinstance(message, Leave):
                    self.why = message.why
                    self.notice.give()
                elif not isinstance(message, OrderAnswer):
                    self._answers[message.order.id] = queue.Queue()
                    self._orders.put(message.order)
                elif message.order in self._answers:
                    self._answers[message.order].put(message.go_on)
        for answers in list(self._answers.values()):
            answers.put(False)
        self._orders.put(None)


@dataclass
class _Link:
    """The link of an order's worker to the coordinator."""

    inbox: OrderInbox
    order: Order

    def exchange(self, report: Report) -> bool:
        # Only a milestone waits for the controller; an earlier stop takes effect at any report.
        return self.inbox.report(report, awaited=report.step in self.order.milestones)

    def tell(self, message: Unanswered) -> None:
        if isinstance(message, CheckpointSaved):
            self.inbox.signals.given = True
        self.inbox.coordinator.send(message)

    def beat(self) -> None:
        self.inbox.signals.beat()

    def once(self, name: str, work: Callable[[], str]) -> str:
        return work()


@dataclass
class _Server:
    """Carry out orders until none is left."""

    config: SlotConfig
    inbox: OrderInbox
    most: int
    running: dict[int, Order] = field(default_factory=dict)
    # The last outcome is sent only when the leaks of all orders are known.
    last: Outcome | None = None

    def serve(self, order: Order) -> None:
        """Carry out this order, and all that arrive while an order is running."""
        share = self.config.gpu_share
        before = process_state.baseline(share)
        with Batch(self.most) as batch:
            self._add(batch, order)
            while batch.workers:
                while self._has_room(batch) and not self.inbox.is_empty:
                    self._add(batch, self.inbox.wait())
                left = [] if self.inbox.notice.given else self._epoch(batch)
                if self.inbox.notice.given:
                    left += batch.leave(self.inbox.why)
                for worker, failure in left:
                    worker.close()
                    self._end(self.running[worker.order], failure)
        leaks = [
            *process_state.restore(before),
            *process_state.difference(before, process_state.baseline(share)),
        ]
        leaks += [f"it {SIGTERM_TEXT}"] * self.inbox.notice.given
        assert self.last is not None
        self.inbox.coordinator.send(replace(self.last, leaks=tuple(map(encodable, leaks))))

    def _add(self, batch: Batch, order: Order) -> None:
        self.running[order.id] = order
        worker = make_worker(self.config, order, 0, _Link(self.inbox, order))
        failure = None
        try:
            if batch.add(_task(self.config, order), worker):
                return
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            failure = error
        worker.close()
        self._end(order, failure)

    def _has_room(self, batch: Batch) -> bool:
        return len(batch.workers) < batch.most and not self.inbox.notice.given

    def _epoch(self, batch: Batch) -> list[FinishedTrial]:
        try:
            return batch.epoch()
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            return self._end_all(batch, error)

    def _end_all(self, batch: Batch, error: BaseException) -> list[FinishedTrial]:
        """End all trials with an error; if memory ran out, train fewer at once from now on."""
        workers = batch.workers
        if out_of_memory(error) and len(workers) > 1:
            self.most = batch.most = len(workers) // 2
            text = f"{len(workers)} trials at once did not fit into memory; from now on {self.most}"
            error = _TooManyTrials(f"{text}: {text_of(error)}")
        batch.clear()
        return [FinishedTrial(worker, error) for worker in workers]

    def _end(self, order: Order, error: BaseException | None) -> None:
        del self.running[order.id]
        self.inbox.forget(order.id)
        kind = _kind(order, error, self.config)
        self.last = make_outcome(self.config, order, kind, _message(kind, error))
        if self.running:
            self.inbox.coordinator.send(self.last)


class _TooManyTrials(Exception):
    """Memory ran out for several trials at once; each of them alone may fit."""


def serve(
    config: SlotConfig, coordinator: CoordinatorConnection, heartbeat: Heartbeat, log: Path
) -> None:
    """Carry out the coordinator's orders, several at once, until it is gone.

    Args:
        log: the file for the output of all trials.

    Raises:
        EOFError, OSError: the coordinator is gone.
    """
    signals = LivenessSignals()
    sigterm = SigtermHandler(lambda order: coordinator.send(PreemptionNotice(order)))
    inbox = OrderInbox(coordinator, signals, sigterm.notice)
    most = config.training.trials_per_process
    while True:
        order = inbox.wait()
        with (
            sigterm.during(ALL_ORDERS),
            redirect_output(log, config.secrets.values()) as file,
            heartbeat.during(ALL_ORDERS, signals, file),
        ):
            server = _Server(config, inbox, most)
            server.serve(order)
            most = server.most


def _task(config: SlotConfig, order: Order) -> Task:
    """Return the Task of an order.

    Raises:
        Unbatchable: the trainable is no Task.
    """
    bound = load.bind(load.resolve(config.trainable), order.params)
    task = getattr(inspect.unwrap(bound), "__self__", None)
    if not isinstance(task, Task):
        raise Unbatchable(
            f"training.trials_per_process is {config.training.trials_per_process}, but "
            f"{config.trainable} is no Task; "
            "leave it out, or give a Task"
        )
    return task


def _kind(order: Order, error: BaseException | None, config: SlotConfig) -> OutcomeKind:
    if error is None:
        return "ended"
    if isinstance(error, Preempted):
        return "preempt"
    if isinstance(error, CheckpointDamaged):
        return "damaged" if order.is_start(error.file) else "collateral"
    if isinstance(error, _TooManyTrials):
        return "collateral"
    return outcome_kind(error, config.gpu_share, config.folder)


def _message(kind: OutcomeKind, error: BaseException | None) -> str:
    """Return the message for an error, with a traceback if it comes from the user's code."""
    if error is None:
        return ""
    if isinstance(error, Preempted):
        return error.reason
    traceback_text = log_error(error)
    return text_of(error) if kind in ("diverged", "damaged", "collateral") else traceback_text
