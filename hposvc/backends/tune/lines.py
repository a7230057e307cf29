"""The driver's lines to the slots that live in Tune trials' processes."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal

from hposvc.backends.crew import GONE_S
from hposvc.backends.tune.slot import Took, Welcome, Word
from trainables.slots.assignment import Place
from trainables.slots.wire import Hello


@dataclass
class Lines:
    """Takes the slots' calls, and passes decisions to the one that has the order."""

    sweep: str
    place: Place
    options: Mapping[str, Any]  # of the ranks' actors
    lost: Callable[[int], None]  # told of a slot whose process is gone, by the last order it had
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _slots: int = 0  # so far
    _lines: dict[str, Connection] = field(default_factory=dict)  # by slot
    _last: dict[str, int] = field(default_factory=dict)  # slot -> the order that it took last
    _holders: dict[int, str] = field(default_factory=dict)  # order -> slot
    _early: dict[int, Word] = field(default_factory=dict)  # by order, while no slot has it
    _closed: bool = False

    def join(self, hello: Hello, connection: Connection) -> None:
        """Serve a slot's line for as long as it stands; called from a thread of its own."""
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._slots += 1
            name = f"{self.sweep}/slot-{self._slots}"
            connection.send(Welcome(name, self.place, self.options))
            self._lines[name] = connection
        with suppress(EOFError, OSError):
            while True:
                self._give(name, connection.recv())
        with self._lock:
            connection.close()
            del self._lines[name]
            last = self._last.pop(name, None)
        if last is not None:
            self.lost(last)

    def tell(self, order: int, verdict: Literal["continue", "stop", "kill"]) -> None:
        """Pass a decision on; a slot that takes the order later still hears it."""
        word = Word(order, verdict)
        with self._lock:
            holder = self._holders.get(order)
            if holder is not None:
                self._send(holder, word)
            elif verdict != "continue" and self._early.get(order) != Word(order, "kill"):
                self._early[order] = word

    def holder(self, order: int) -> str | None:
        """The slot that has the order, also if it is gone by now; None: no slot took it."""
        return self._holders.get(order)

    def forget(self, order: int) -> None:
        """The order is over."""
        with self._lock:
            self._holders.pop(order, None)
            self._early.pop(order, None)

    def close(self) -> None:
        """Send every slot home, and take no more calls."""
        with self._lock:
            self._closed = True
            for name in self._lines:
                self._send(name, Word(0, "leave"))

    def await_end(self) -> None:
        """Wait until the slots' processes are gone."""
        deadline = time.monotonic() + GONE_S
        while self._lines and time.monotonic() < deadline:
            time.sleep(0.01)

    def _give(self, name: str, took: Took) -> None:
        with self._lock:
            self._last[name] = took.order
            self._holders[took.order] = name
            word = self._early.pop(took.order, None)
            if word is not None:
                self._send(name, word)

    def _send(self, name: str, word: Word) -> None:
        with suppress(OSError, KeyError):  # it is gone, which is heard of in another way
            self._lines[name].send(word)
