"""The local backend: orders run from this process without Ray, for debuggers and for scripts.

A trainable runs in a thread, one order at a time. Each report blocks until the driver has taken it,
so that a breakpoint anywhere stops everything. The threads share only queues. A command's programs
are processes of their own, so `trials.parallel` of them run at once. What an order prints goes to
its log, as on other engines.
"""

import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hposvc.backends.backend import Answer, Backend, Setting, to_events
from hposvc.backends.shared_storage import check_shared
from hposvc.errors import fail
from hposvc.events import BackendEvent
from trainables.contract import (
    Assignment,
    CodeChanged,
    Order,
    OrderMessage,
    OrderPlaced,
    Outcome,
    Report,
    Server,
    SlotConfig,
    Unanswered,
    carry_out,
    log_file,
)
from trainables.load import Sources
from trainables.monitoring import device, energy
from trainables.runtime.output import log_target, redirect_trainable

AGAIN = "and `hposvc resume` goes on"
JOIN_S = 5.0  # for a trainable to stop at `close`; after that its daemon thread is abandoned


@dataclass
class _Running:
    """An order and its thread; every report of the thread gets exactly one answer."""

    order: Order
    thread: threading.Thread
    answers: "queue.Queue[bool]"  # True: continue
    output: ExitStack  # sends what the order prints to its log, until it is closed
    judged: int = 0  # the last step with the sweep's metrics that the driver has taken
    waits: bool = False  # the thread waits for the answer to its report
    at_milestone: bool = False  # only the driver's decision answers the report
    stopped: bool = False

    def take(self, report: Report) -> None:
        reaches = self.order.reaches_milestone(self.judged, report.step)
        self.at_milestone = report.judged and reaches
        self.judged = report.step if report.judged else self.judged
        self.waits = True

    def answer(self) -> None:
        if self.waits:
            self.waits = self.at_milestone = False
            self.answers.put(not self.stopped)


class LocalBackend(Backend):
    """A backend whose slots are threads of this process: one for a trainable.

    Args:
        debugged: orders print to the terminal and read from it, for a debugger.
    """

    def __init__(self, setting: Setting, debugged: bool = False) -> None:
        self._debugged = debugged
        check_shared(replace(setting, address=None))  # no other node takes part
        self.setting = setting
        self._config = config = setting.slot_config()
        self._original_environ = dict(os.environ)
        self._sources = Sources(config.code)
        try:
            self._original_folder = Path.cwd()
        except FileNotFoundError as error:
            raise fail("the folder in which hposvc works is gone", fix=f"cd, {AGAIN}") from error
        config.enter()
        self._folder = Path.cwd()
        os.environ.update({**config.variables, **config.secrets})
        self._meter = energy.meter(config.gpu, config.gpu_share)
        self._messages: queue.Queue[OrderMessage] = queue.Queue()
        self._running: dict[int, _Running] = {}  # by the order's number
        self._slots = 1
        self._limit: int | None = None  # slots that the driver still needs; None: all
        self._idle: list[Server] = []  # of slots without an order
        self.set_parallel(setting.spec.trials.parallel)

    def capacity(self) -> int:
        wanted = self._slots if self._limit is None else min(self._limit, self._slots)
        return max(0, wanted - len(self._running))

    def slots(self) -> int:
        return self._slots

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._check_code()
        config, assignment = self._config, Assignment(order, environment)
        log, secrets = log_file(config.folder, order.trial, order.id, 0), config.secrets.values()
        output = ExitStack()
        if config.command is not None:  # programs that run at once must not share variables
            to = 2 if self._debugged else output.enter_context(log_target(log, secrets))
            command = replace(config.command, environment=environment, output=to)
            if command.server is not None:
                server = self._idle.pop() if self._idle else replace(command.server)
                output.callback(self._idle.append, server)
                command = replace(command, server=server)
            config = replace(config, command=command)
            assignment = Assignment(order)
        elif not self._debugged:
            output.enter_context(redirect_trainable(log, "hposvc", secrets))
        link = _Link(order.id, self._messages)
        here = device.model(config.gpu), platform.node(), self._meter.unmeasured
        self._messages.put(OrderPlaced(order.id, *here))
        work = (config, assignment, link)
        thread = threading.Thread(target=self._carry_out, args=work, daemon=True)
        self._running[order.id] = _Running(order, thread, link.answers, output)
        thread.start()

    def decide(self, order: int, verdict: Answer) -> None:
        running = self._running.get(order)
        if running is not None:
            running.stopped = running.stopped or verdict != "continue"
            running.answer()

    def kill(self, order: int) -> None:
        self.decide(order, "stop")  # a thread can't be killed: it stops at its next report

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        if self._config.command is not None:
            self._slots = 1 if parallel == "auto" else parallel

    def set_slot_limit(self, slots: int) -> int:
        self._limit = slots
        return 1

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        if not self._running:
            time.sleep(timeout_s)
            return []
        self._meter.look()
        for running in self._running.values():
            if not running.at_milestone or running.stopped:
                running.answer()
        try:
            message = self._messages.get(timeout=timeout_s)
        except queue.Empty:
            return []
        sender = self._running.get(message.order)
        if sender is None:
            return []  # from a thread that outlived its order
        if isinstance(message, Outcome):
            self._running.pop(message.order).output.close()
        elif isinstance(message, Report):
            sender.take(message)
        return to_events(message, sender.order.trial, self.now())

    def close(self) -> None:
        self._limit = 0
        for running in self._running.values():
            running.stopped = True
            running.answers.put(False)  # also answers a report that was never taken
        deadline = time.monotonic() + JOIN_S
        for running in self._running.values():
            running.thread.join(max(0.0, deadline - time.monotonic()))
            running.output.close()
        self._running.clear()
        for server in self._idle:
            server.close()
        with suppress(FileNotFoundError):  # deleted meanwhile
            os.chdir(self._original_folder)
        os.environ.clear()
        os.environ.update(self._original_environ)

    def _check_code(self) -> None:
        if not self._folder.is_dir():
            raise fail(f"{self._folder} is gone, where the trials run", fix=f"put it back, {AGAIN}")
        # A trainable is loaded once and can't change; the files of a command can.
        if self._config.command is not None:
            try:
                self._sources.check()
            except CodeChanged as error:
                raise fail(f"{error}") from error

    def _carry_out(self, config: SlotConfig, assignment: Assignment, link: "_Link") -> None:
        with self._meter.during(link.order):
            outcome = carry_out(config, assignment, 0, link)
            used = self._meter.kwh(link.order, exact=True)
        self._messages.put(replace(outcome, energy_kwh=used))


@dataclass
class _Link:
    """The trainable's end of the queues to the driver."""

    order: int
    happened: "queue.Queue[OrderMessage]"
    answers: "queue.Queue[bool]" = field(default_factory=queue.Queue)

    def exchange(self, report: Report) -> bool:
        self.happened.put(report)
        return self.answers.get()

    def tell(self, message: Unanswered) -> None:
        self.happened.put(message)

    def beat(self) -> None:
        """Do nothing: a debugger may stop this process for hours, so no heartbeat is expected."""

    def once(self, name: str, work: Callable[[], str]) -> str:
        return work()
