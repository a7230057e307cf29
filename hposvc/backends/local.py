"""The local backend: orders run in this process, one at a time, without Ray, for debuggers.

The trainable runs in a thread. Each report blocks until the driver has taken it, so that a
breakpoint anywhere stops everything. The two threads share only queues.
"""

import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, Setting, to_events
from hposvc.backends.shared_storage import check_shared
from hposvc.errors import fail
from hposvc.events import BackendEvent
from trainables.dataset import DataSet
from trainables.link import Report
from trainables.load import CodeChanged, Sources
from trainables.monitoring import device
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome, carry_out
from trainables.runtime.wire import CheckpointSaved, DataDeclared, OrderMessage, OrderPlaced
from trainables.storage.checkpoint import Saved

JOIN_S = 5.0  # for a trainable to stop at `close`; after that its daemon thread is abandoned


@dataclass
class _Running:
    """An order and its thread; every report of the thread gets exactly one answer."""

    order: Order
    thread: threading.Thread
    answers: "queue.Queue[bool]"  # True: continue
    step: int = 0  # of the last report that the driver has taken
    waits: bool = False  # the thread waits for the answer to its report
    at_milestone: bool = False  # only the driver's decision answers the report
    stopped: bool = False

    def take(self, report: Report) -> None:
        self.at_milestone = self.order.reaches_milestone(self.step, report.step)
        self.step, self.waits = report.step, True

    def answer(self) -> None:
        if self.waits:
            self.waits = self.at_milestone = False
            self.answers.put(not self.stopped)


class Local:
    """A backend with a single slot: a thread of this process."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        check_shared(replace(setting, address=None))  # no other node takes part
        self._config = config = setting.slot_config()
        self._original_environ = dict(os.environ)
        self._sources = Sources(config.code)
        self._original_folder = Path.cwd()
        config.enter()
        os.environ.update({**config.variables, **config.secrets})
        self._messages: queue.Queue[OrderMessage] = queue.Queue()
        self._running: _Running | None = None
        self._limit = 1

    def now(self) -> float:
        return time.time()

    def capacity(self) -> int:
        return 0 if self._running is not None else self._limit

    def slots(self) -> int:
        return 1

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._check_code()
        assignment = Assignment(order, environment)
        link = _Link(order.id, self._messages)
        here = OrderPlaced(order.id, device.model(self._config.gpu), platform.node())
        self._messages.put(here)
        thread = threading.Thread(target=self._carry_out, args=(assignment, link), daemon=True)
        self._running = _Running(order, thread, link.answers)
        thread.start()

    def decide(self, order: int, verdict: Answer) -> None:
        running = self._running
        if running is not None and running.order.id == order:
            running.stopped = running.stopped or verdict != "continue"
            running.answer()

    def kill(self, order: int) -> None:
        self.decide(order, "stop")  # a thread can't be killed: it stops at its next report

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        pass  # this backend runs one order at a time, whatever is asked for

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(slots, 1)
        return 1

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        running = self._running
        if running is None:
            time.sleep(timeout_s)
            return []
        if not running.at_milestone or running.stopped:
            running.answer()
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return []
        if message.order != running.order.id:
            return []  # from a thread that outlived its order
        if isinstance(message, Outcome):
            self._running = None
        elif isinstance(message, Report):
            running.take(message)
        return to_events(message, running.order.trial, self.now())

    def close(self) -> None:
        self._limit = 0
        if self._running is not None:
            self._running.stopped = True
            self._running.answers.put(False)  # also answers a report that was never taken
            self._running.thread.join(JOIN_S)
            self._running = None
        os.chdir(self._original_folder)
        os.environ.clear()
        os.environ.update(self._original_environ)

    def _check_code(self) -> None:
        # A trainable is loaded once and can't change; the files of a command can.
        if self._config.command is not None:
            try:
                self._sources.check()
            except CodeChanged as error:
                raise fail(f"{error}") from error

    def _carry_out(self, assignment: Assignment, link: "_Link") -> None:
        self._messages.put(carry_out(self._config, assignment, 0, link))


@dataclass
class _Link:
    """The trainable's end of the queues to the driver."""

    order: int
    happened: "queue.Queue[OrderMessage]"
    answers: "queue.Queue[bool]" = field(default_factory=queue.Queue)

    def exchange(self, report: Report) -> bool:
        self.happened.put(report)
        return self.answers.get()

    def keep(self, saved: Saved) -> None:
        self.happened.put(CheckpointSaved(self.order, saved))

    def uses(self, data: tuple[DataSet, ...]) -> None:
        self.happened.put(DataDeclared(self.order, data))

    def beat(self) -> None:
        """Do nothing: a debugger may stop this process for hours, so no heartbeat is expected."""

    def once(self, name: str, work: Callable[[], Path]) -> Path:
        return work()
