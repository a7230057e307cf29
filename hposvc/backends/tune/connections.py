"""The driver's connections to the slots in Tune trials' processes."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal

from hposvc.backends.ray.rank_group import GONE_S
from hposvc.backends.tune.tune_slot import DecisionMessage, OrderAccepted, Welcome
from trainables.runtime.assignment import SlotConfig
from trainables.runtime.wire import Hello


@dataclass
class SlotConnections:
    """Accepts connections of slots, and sends each decision to the slot that has the order."""

    sweep: str
    place: SlotConfig
    options: Mapping[str, Any]  # of the ranks' actors
    lost: Callable[[int], None]  # called when a slot's process is gone, with its last order
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _slots: int = 0  # connected so far
    _connections: dict[str, Connection] = field(default_factory=dict)  # by slot
    # Slot -> the last order that it took.
    _last_orders: dict[str, int] = field(default_factory=dict)
    _holders: dict[int, str] = field(default_factory=dict)  # order -> slot
    # By order, while no slot has it.
    _early_decisions: dict[int, DecisionMessage] = field(default_factory=dict)
    _closed: bool = False

    def join(self, hello: Hello, connection: Connection) -> None:
        """Serve the connection of a slot until it closes; called from a thread of its own."""
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._slots += 1
            name = f"{self.sweep}/slot-{self._slots}"
            connection.send(Welcome(name, self.place, self.options))
            self._connections[name] = connection
        with suppress(EOFError, OSError):
            while True:
                self._record_holder(name, connection.recv())
        with self._lock:
            connection.close()
            del self._connections[name]
            last = self._last_orders.pop(name, None)
        if last is not None:
            self.lost(last)

    def send_decision(self, order: int, verdict: Literal["continue", "stop", "kill"]) -> None:
        """Send a decision to the order's slot, or to the slot that will take the order later."""
        message = DecisionMessage(order, verdict)
        with self._lock:
            holder = self._holders.get(order)
            if holder is not None:
                self._send(holder, message)
            elif verdict != "continue" and self._early_decisions.get(order) != DecisionMessage(
                order, "kill"
            ):
                self._early_decisions[order] = message

    def holder(self, order: int) -> str | None:
        """Return the slot that took the order, even if that slot is gone; None: no slot took it."""
        return self._holders.get(order)

    def forget(self, order: int) -> None:
        """Drop all records of an order that is over."""
        with self._lock:
            self._holders.pop(order, None)
            self._early_decisions.pop(order, None)

    def close(self) -> None:
        """Tell every slot to leave, and accept no more connections."""
        with self._lock:
            self._closed = True
            for name in self._connections:
                self._send(name, DecisionMessage(0, "leave"))

    def await_end(self) -> None:
        """Wait until the slots' processes are gone."""
        deadline = time.monotonic() + GONE_S
        while self._connections and time.monotonic() < deadline:
            time.sleep(0.01)

    def _record_holder(self, name: str, accepted: OrderAccepted) -> None:
        with self._lock:
            self._last_orders[name] = accepted.order
            self._holders[accepted.order] = name
            message = self._early_decisions.pop(accepted.order, None)
            if message is not None:
                self._send(name, message)

    def _send(self, name: str, message: DecisionMessage) -> None:
        with suppress(OSError, KeyError):  # the slot is gone; `join` notices that by itself
            self._connections[name].send(message)
