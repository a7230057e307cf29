"""Orders in this process, one at a time, without Ray: for debuggers.

The trainable runs in a thread; where it reports, it waits until the driver has taken the report,
so that a breakpoint anywhere holds everything. Only queues are shared between the two threads.
"""

import os
import queue
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, Setting, assignment, failed
from hposvc.backends.sharing import check_shared
from hposvc.events import BackendEvent, Checkpointed, Described, Ended, Order, Reported
from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet
from trainables.slots.assignment import Assignment, Outcome, carry_out
from trainables.slots.wire import Keep, Uses

JOIN_S = 5.0  # for a function that was told to stop; it is a daemon thread beyond that


@dataclass(frozen=True)
class _Report:
    step: int
    metrics: Mapping[str, float]
    saved: Saved | None


@dataclass
class _Running:
    """An order on its thread; every report of it gets one answer."""

    order: Order
    thread: threading.Thread
    answers: "queue.Queue[bool]"  # True: go on
    step: int = 0  # the last one that the driver has taken
    waits: bool = False  # for the answer to its report
    at_milestone: bool = False  # only a decision answers
    stopped: bool = False

    def take(self, report: _Report) -> None:
        milestones = self.order.milestones
        self.at_milestone = any(self.step < at <= report.step for at in milestones)
        self.step, self.waits = report.step, True

    def answer(self) -> None:
        if self.waits:
            self.waits = self.at_milestone = False
            self.answers.put(not self.stopped)


class Local:
    """One slot, in this process."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        check_shared(setting)
        self._place = place = setting.place()
        self._before = dict(os.environ)
        os.environ.update({**place.variables, **place.secrets})
        self._happened: queue.Queue[_Report | Keep | Uses | Outcome] = queue.Queue()
        self._running: _Running | None = None
        self._limit = 1

    def now(self) -> float:
        return time.time()

    def capacity(self) -> int:
        return 0 if self._running is not None else self._limit

    def slots(self) -> int:
        return 1

    def start(self, order: Order, environment: dict[str, str]) -> None:
        task = assignment(order, environment)
        link = _Link(order.id, self._happened)
        thread = threading.Thread(target=self._carry_out, args=(task, link), daemon=True)
        self._running = _Running(order, thread, link.answers)
        thread.start()

    def decide(self, order: int, verdict: Answer) -> None:
        running = self._running
        if running is not None and running.order.id == order:
            running.stopped = running.stopped or verdict != "continue"
            running.answer()

    def kill(self, order: int) -> None:
        self.decide(order, "stop")  # a thread can't be killed: it stops where it next reports

    def allow(self, parallel: int | Literal["auto"]) -> None:
        pass  # one at a time, whatever is wanted

    def limit(self, slots: int) -> int:
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
            happened = self._happened.get(timeout=timeout_s)
        except queue.Empty:
            return []
        now, order = self.now(), running.order
        if isinstance(happened, Outcome):
            self._running = None
            if happened.kind == "ended":
                return [Ended(now, order.id, order.trial)]
            return [failed(now, order.id, order.trial, happened)]
        if isinstance(happened, Keep | Uses):
            if happened.order != order.id:
                return []  # from a thread that outlived its order
            if isinstance(happened, Uses):
                return [Described(now, order.id, order.trial, happened.data)]
            return [Checkpointed(now, order.id, order.trial, happened.saved)]
        running.take(happened)
        report = Reported(now, order.id, order.trial, happened.step, happened.metrics)
        if happened.saved is None:
            return [report]
        return [Checkpointed(now, order.id, order.trial, happened.saved), report]

    def close(self) -> None:
        self._limit = 0
        if self._running is not None:
            self._running.stopped = True
            self._running.answers.put(False)  # also for a report that nobody took
            self._running.thread.join(JOIN_S)
            self._running = None
        os.environ.clear()
        os.environ.update(self._before)

    def _carry_out(self, task: Assignment, link: "_Link") -> None:
        try:
            outcome = carry_out(self._place, task, 0, link)
        except SystemExit:  # of the user's code; it would only end this thread
            outcome = Outcome(task.order, "user", traceback.format_exc())
        self._happened.put(outcome)


@dataclass
class _Link:
    """The trainable's end."""

    order: int
    happened: "queue.Queue[_Report | Keep | Uses | Outcome]"
    answers: "queue.Queue[bool]" = field(default_factory=queue.Queue)

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        self.happened.put(_Report(step, metrics, checkpoint))
        return self.answers.get()

    def keep(self, saved: Saved) -> None:
        self.happened.put(Keep(self.order, saved))

    def uses(self, data: tuple[DataSet, ...]) -> None:
        self.happened.put(Uses(self.order, data))

    def beat(self) -> None:
        """Nobody watches over it: a debugger may hold it for hours."""
