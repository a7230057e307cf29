"""The coordinator of a slot whose single rank carries out several orders at once. Without torch."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Literal

from trainables.link import Report
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.coordinator import POLL_S, WRITING_S
from trainables.runtime.wire import (
    Beat,
    Hello,
    Leave,
    Message,
    PreemptionNotice,
    PreemptionStarted,
    RankMessage,
    Ready,
    placed,
)
from trainables.stop_signals import SIGTERM_TEXT
from trainables.vmapped.wire import ALL_ORDERS, OrderAnswer


@dataclass
class _RunningOrder:
    """An order that the rank is carrying out."""

    order: Order
    stop: bool = False
    waits: bool = False  # for a decision, at a milestone


class BatchCoordinator:
    """Run up to K orders at once on the rank of its slot.

    Args:
        say: called with each message, from the coordinator's thread.
        stall_s: seconds without a sign of life after which the rank's orders count as hanging.
    """

    def __init__(self, say: Callable[[Message], None], stall_s: float) -> None:
        self._say, self._stall_s = say, stall_s
        self._lock = threading.Lock()
        self._rank: Connection | None = None
        self._hello: Hello | None = None
        self._orders: dict[int, _RunningOrder] = {}
        self._leaving = ""  # why the rank is to end; empty if it is not
        self._heard_at = time.monotonic()

    def join(self, hello: Hello, connection: Connection) -> None:
        """Take over the connection of the rank, which is now ready for orders."""
        with self._lock:
            self._rank, self._hello = connection, hello
            connection.send(hello.rank_store)
        threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
        self._say(Ready())

    def carry_out(self, assignment: Assignment) -> None:
        """Send one more order to the rank."""
        with self._lock:
            if not self._orders:
                self._heard_at = time.monotonic()
            self._orders[assignment.order.id] = _RunningOrder(assignment.order)
            hellos = [] if self._hello is None else [self._hello]
            if (place := placed(assignment.order.id, hellos)) is not None:
                self._say(place)
            self._send(assignment)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass on the controller's answer to a milestone; a `stop` may come at any time."""
        with self._lock:
            running = self._orders.get(order)
            if running is not None:
                running.stop = running.stop or verdict == "stop"
                if running.waits or running.stop:  # a stop is read at the next report
                    self._answer(running)

    def leave(self, why: str) -> None:
        """End all orders after their current epoch, so that the trials resume elsewhere."""
        with self._lock:
            self._send(Leave(why))  # before answers, which would let the rank begin another epoch
            self._leave(why)

    def _leave(self, why: str) -> None:
        """Announce the preemption, and let waiting orders go on: their decisions come too late."""
        if self._leaving:
            return
        self._leaving = why
        self._say(PreemptionStarted(ALL_ORDERS, why))
        for running in self._orders.values():
            if running.waits:
                self._answer(running)

    def _answer(self, running: _RunningOrder) -> None:
        running.waits = False
        self._heard_at = time.monotonic()
        self._send(OrderAnswer(running.order.id, not running.stop))

    def _send(self, message: Assignment | OrderAnswer | Leave) -> None:
        if self._rank is not None:
            with suppress(OSError):  # whoever watches the rank notices that it is gone
                self._rank.send(message)

    def _listen(self, connection: Connection) -> None:
        with connection:
            while True:
                try:
                    message = connection.recv() if connection.poll(POLL_S) else None
                except (EOFError, OSError):
                    return
                with self._lock:
                    if message is None:
                        self._check_stall()
                    else:
                        self._heard_at = time.monotonic()
                        self._handle(message)

    def _handle(self, message: RankMessage) -> None:
        if isinstance(message, PreemptionNotice):
            self._leave(f"the rank {SIGTERM_TEXT}")
            return
        running = self._orders.get(message.order)
        if running is None or isinstance(message, Beat):
            return  # a beat of all orders, or a message of an order that is over
        if isinstance(message, Outcome):
            del self._orders[message.order]
            self._finish(message)
            return
        self._say(message)
        if isinstance(message, Report) and message.step in running.order.milestones:
            running.waits = True
            if running.stop or self._leaving:
                self._answer(running)

    def _finish(self, outcome: Outcome) -> None:
        if self._leaving and outcome.kind in ("stalled", "collateral"):
            outcome = replace(outcome, kind="preempt", message=self._leaving)
        self._say(outcome)

    def _check_stall(self) -> None:
        """End all orders as stalled if the rank gave no sign of life for too long."""
        any_waits = any(running.waits for running in self._orders.values())
        late = time.monotonic() > self._heard_at + self._stall_s + WRITING_S
        if not late or any_waits or not self._orders:
            return
        orders, self._orders = self._orders, {}
        message = (
            f"no sign of life from the process of {len(orders)} trials for {self._stall_s:g} s "
            "(failure.stall); the stacks of all threads end the slot's log"
        )
        for order in orders:
            self._finish(Outcome(order, "stalled", message, clean=False))
