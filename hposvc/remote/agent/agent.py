"""The agent: asks a server for trials of a sweep, and has its ranks train one after the other.

The main thread handles what comes into the inbox: messages of the ranks, answers of the server, and
signals. One thread sends reports in their order, another one the heartbeats, so neither a slow
server nor a long computation holds the other up.
"""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from hposvc.backends.backend import Setting
from hposvc.backends.process.rank_commands import Launcher
from hposvc.backends.process.rank_group import Exited, RankGroup
from hposvc.backends.process.slot import ProcessSlot
from hposvc.errors import INTERRUPTED, Interrupted, LeaseLost, OutOfReach, SweepOver
from hposvc.journal.agents import AgentOrder, AgentReply
from hposvc.remote.agent.exchange import AgentExchange
from hposvc.remote.agent.sweep_files import RecordedSweep, Say, folder_here
from hposvc.spec import fingerprint
from trainables.contract import (
    FOREIGN,
    SIGTERM_TEXT,
    Assignment,
    Beat,
    Message,
    Order,
    OrderMessage,
    Outcome,
    Report,
    SlotConfig,
    log_file,
)

BEATS = 4  # heartbeats within the time of a lease
PAUSES_S = (0.5, 1.0, 2.0)  # between two asks in vain; the last one again and again
LOOK_S = 0.1  # between two looks whether this agent is to leave
LAST_S = 5.0  # to send what is known, and to give the order back, when there is no time left
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
NO_SIGNAL = 0  # in place of a signal: the agent has ended
LEAVING = f"the agent {SIGTERM_TEXT}"
SAID = {"ended": "done", "preempt": "released"}  # of outcomes, to the user; of others: failed


@dataclass(frozen=True)
class Answered:
    """The server's reply to a message; the ranks may wait for it."""

    order: int
    reply: AgentReply
    waits: bool = False

    @property
    def stops(self) -> bool:
        """Whether the ranks are to let go; checkpoints are theirs to write, if they can."""
        return self.reply != "continue"


@dataclass(frozen=True)
class Refused:
    """The server could not be told of an order: its lease is lost, or the server is gone."""

    order: int
    error: Exception


@dataclass(frozen=True)
class EndSignal:
    """A signal to end has come."""


@dataclass(frozen=True)
class GraceOver:
    """The time to leave in good order has passed."""


Inbox = tuple[RankGroup, Message | Exited] | Answered | Refused | EndSignal | GraceOver


@dataclass(eq=False)
class Agent:
    """Carries out orders of a sweep until it is over, or this process is told to end.

    Args:
        grace_s: seconds from a signal to end until the ranks are killed.
        say: shows the user what the agent does.
    """

    exchange: AgentExchange
    recorded: RecordedSweep
    launcher: Launcher
    stack: ExitStack
    grace_s: float
    say: Say
    _inbox: "queue.SimpleQueue[Inbox]" = field(default_factory=queue.SimpleQueue)
    # Signal handlers may put into this kind of queue.
    _signals: "queue.SimpleQueue[int]" = field(default_factory=queue.SimpleQueue)
    _left_by: int = 0  # the signal that came; 0: none
    _leaving: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of the slot's order
    _slot: ProcessSlot | None = None
    _config: SlotConfig | None = None

    def __post_init__(self) -> None:
        self._sender = MessageSender()

    def run(self, count: int | None) -> int:
        """Carry out at most `count` orders, and return how many this agent has ended.

        Raises:
            OutOfReach: the server does not answer, or the sweep's trials can't be trained here.
            SpecError: a secret is missing here, or the code is.
            Interrupted: by Ctrl-C.
        """
        ended = 0
        with self._heeding_signals():
            while (count is None or ended < count) and (work := self._next_work()):
                ended += self._carry_out(work)
        if self._left_by == signal.SIGINT:
            raise Interrupted("interrupted", "the server gives the trial to another agent")
        return ended

    def _next_work(self) -> AgentOrder | None:
        """Ask until there is an order; None: the sweep is over, or this agent leaves."""
        tries = 0
        while not self._leaving.is_set():
            asked = self._sender.submit(self.exchange.ask)
            while not wait([asked], LOOK_S).done and not self._leaving.is_set():
                pass
            if self._leaving.is_set():
                wait([asked], LAST_S)
            if not asked.done():
                break  # if an order is on its way, its lease will end
            try:
                answer: AgentOrder | None = asked.result()
            except SweepOver:
                self.say(f"{self.recorded.id} is over")
                break
            if answer is not None:
                return answer
            self._leaving.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1
        return None

    def _carry_out(self, work: AgentOrder) -> bool:
        """Have an order carried out, and tell the server how it ended; False: it is not ours."""
        order = work.to_order()
        steps = f"{order.first}..{'' if order.until is None else order.until}"
        with self._beating(order, work.lease_s):
            try:
                slot = self._ready_slot(work)
            except Exception as error:
                why = f"{self.exchange.client} can't train: {error}"
                with suppress(LeaseLost, OutOfReach):
                    self.exchange.tell(Outcome(order.id, "preempt", why))
                raise
            if slot is None or log_file(slot.folder, order.trial, order.id, 0).exists():
                # An earlier process may have saved checkpoints under the names of this order.
                why = LEAVING if slot is None else "this client has begun it in another process"
                self._tell(order, Outcome(order.id, "preempt", why))
                return False
            if order.until is not None and order.first > order.until:  # all is reported already
                return self._tell(order, Outcome(order.id, "ended"))
            self.say(f"{order.trial}: training steps {steps}")
            return self._train(slot, Assignment(order, work.environment))

    def _train(self, slot: ProcessSlot, assignment: Assignment) -> bool:
        order, judged = assignment.order, 0
        with self._lock:
            slot.carry_out(assignment)
            if self._leaving.is_set():
                slot.leave(LEAVING)
        while True:
            match self._next_news(slot, order):
                case Outcome() as outcome:
                    return self._conclude(order, outcome)
                case GraceOver():
                    slot.drop()
                    return self._conclude(order, Outcome(order.id, "preempt", LEAVING))
                case Refused(error=error):
                    return self._give_up(order, error)
                case Report() as report:
                    waits = report.judged and order.reaches_milestone(judged, report.step)
                    judged = report.step if report.judged else judged
                    self._send(report, waits)
                case message:
                    self._send(message)

    def _next_news(self, slot: ProcessSlot, order: Order) -> OrderMessage | Refused | GraceOver:
        """Pass the server's answers on to the ranks, until there is something else."""
        while True:
            match self._inbox.get():
                case Answered(order=order.id) as answered if answered.waits or answered.stops:
                    slot.decide(order.id, "stop" if answered.stops else "continue")
                case Refused(order=order.id) | GraceOver() as last:
                    return last
                case RankGroup() as group, message:
                    with self._lock:
                        news = slot.handle(group, message)
                    if news is not None:
                        return news

    def _conclude(self, order: Order, outcome: Outcome) -> bool:
        """Tell the server how an order ended, after all reports."""
        sent = self._sender.submit(lambda: None)  # all reports come before it
        wait([sent], LAST_S if self._leaving.is_set() else None)
        return self._tell(order, outcome)

    def _tell(self, order: Order, outcome: Outcome) -> bool:
        try:
            self.exchange.tell(replace(outcome, leaks=()))  # of our ranks, which end with it
        except LeaseLost as error:
            return self._give_up(order, error)
        self.say(f"{order.trial}: {SAID.get(outcome.kind, 'failed')}")
        return True

    def _give_up(self, order: Order, error: Exception) -> bool:
        """Kill the ranks of an order that is not ours any more.

        Raises:
            Exception: the error, unless it says that the lease is lost.
        """
        if self._slot is not None:
            self._slot.drop()
        if not isinstance(error, LeaseLost):
            raise error
        self.say(f"{order.trial}: {error}")
        return False

    def _send(self, message: OrderMessage, waits: bool = False) -> None:
        """Have a message sent after all that were sent before; the reply comes into the inbox."""
        self._sender.submit(partial(self._exchange, message, waits))

    def _exchange(self, message: OrderMessage | Beat, waits: bool = False) -> None:
        try:
            self._inbox.put(Answered(message.order, self.exchange.tell(message), waits))
        except Exception as error:  # noqa: BLE001 - raised by the main thread
            self._inbox.put(Refused(message.order, error))

    @contextmanager
    def _beating(self, order: Order, lease_s: float) -> Iterator[None]:
        """Send heartbeats for an order within the context.

        A lease that is lost shows at each of them: nobody listens while the ranks start.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(lease_s / BEATS):
                self._exchange(Beat(order.id))

        threading.Thread(target=beat, name="heartbeat", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _ready_slot(self, work: AgentOrder) -> ProcessSlot | None:
        """Return ranks that can carry out an order; None: this agent leaves before they are up.

        Raises:
            OutOfReach: they can't start, or can't read the checkpoint to start from.
        """
        if work.start is not None and work.start.path.startswith(FOREIGN):
            own = work.start.path.removeprefix(FOREIGN)
            raise OutOfReach(
                f"{work.trial} goes on from {own}, which a worker of another kind wrote",
                fix="let only such workers take this sweep's trials, or only `hposvc agent`",
            )
        slot, config = self._prepare(work)
        with suppress(queue.Empty):  # a rank may have exited since the last order
            while True:
                self._handle_idle(slot, self._inbox.get_nowait())
        ranks = work.workers or config.world_size
        slot.prepare(replace(config, world_size=ranks, total=work.total))
        while not slot.ready:
            if self._leaving.is_set():
                slot.drop()
                return None
            self._handle_idle(slot, self._inbox.get())
        return slot

    def _handle_idle(self, slot: ProcessSlot, item: Inbox) -> None:
        """Let the slot take what came while it has no order; all else is of an earlier one."""
        match item:
            case RankGroup() as group, message:
                slot.handle(group, message)

    def _prepare(self, work: AgentOrder) -> tuple[ProcessSlot, SlotConfig]:
        """Return the slot and the configuration of its ranks, with paths of this machine.

        Raises:
            OutOfReach: this machine does not see the sweep's storage.
            SpecError: a secret is missing here, or the code is.
        """
        if self._slot is None or self._config is None:
            http = self.exchange.http
            # Only when its driver has begun, as it has by now, is the code recorded.
            self.recorded = RecordedSweep.fetch(http, self.recorded.id)
            folder = folder_here(Path(work.folder), work.storage, self.stack, self.say)
            spec = self.recorded.spec_here(http, self.stack, self.say)
            setting = Setting(
                self.recorded.id,
                spec,
                folder,
                folder,
                secrets=spec.environment.reveal(os.environ),
                code=fingerprint.fingerprint(spec),
            )
            own = () if spec.folder is None else (spec.folder,)
            config = setting.slot_config()
            self._config = replace(config, path=(*own, *config.path))
            name = f"{self.recorded.id}/agent-{self.exchange.client}".replace(" ", "-")
            self._slot = ProcessSlot(name, spec.resources, self.launcher, self._post)
            self.stack.callback(self._slot.close)
        return self._slot, self._config

    def _post(self, group: RankGroup, message: Message | Exited) -> None:
        self._inbox.put((group, message))

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """Leave in good order when a signal comes; a second one ends the grace."""

        def note(number: int, frame: FrameType | None) -> None:
            self._signals.put(number)

        thread = threading.Thread(target=self._leave, name="signals", daemon=True)
        thread.start()
        before = {number: signal.signal(number, note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._signals.put(NO_SIGNAL)
            thread.join()

    def _leave(self) -> None:
        """Wait for a signal, then have the order end with a checkpoint, within the grace."""
        number = self._signals.get()
        if number == NO_SIGNAL:
            return
        self._left_by = number
        self._leaving.set()
        self.say(f"{signal.Signals(number).name}: leaving within {self.grace_s:g} s")
        with self._lock:
            if self._slot is not None and self._slot.order is not None:
                self._slot.leave(LEAVING)
        self._inbox.put(EndSignal())
        if self._next_signal(self.grace_s) == NO_SIGNAL:
            return
        self._inbox.put(GraceOver())
        if self._next_signal(2 * LAST_S) == NO_SIGNAL:
            return
        # The main thread waits for a server that does not answer. Ranks end with this process.
        os._exit(INTERRUPTED if number == signal.SIGINT else 0)

    def _next_signal(self, timeout_s: float) -> int | None:
        """Return the next signal, NO_SIGNAL once the agent has ended, or None after the time."""
        try:
            return self._signals.get(timeout=timeout_s)
        except queue.Empty:
            return None


class MessageSender:
    """A thread that does one thing after the other, and does not keep the process from exiting."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="sender", daemon=True).start()

    def submit(self, call: Callable[[], Any]) -> "Future[Any]":
        """Have a function called, after those submitted before."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def _run(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
