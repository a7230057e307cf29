"""The leader of a slot whose one rank carries out several orders at once. Without torch."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Literal

from trainables.batched.wire import EVERY, Answer, Said, Told
from trainables.slots.assignment import Assignment, Outcome
from trainables.slots.leader import POLL_S, WRITING_S
from trainables.slots.preemption import TOLD
from trainables.slots.wire import (
    Beat,
    Done,
    Finished,
    Hello,
    Keep,
    Kept,
    Leave,
    Leaving,
    Message,
    Ready,
    Reported,
    Used,
    Uses,
    Warned,
)


@dataclass
class _Held:
    """An order that the rank has."""

    task: Assignment
    step: int = 0
    stop: bool = False
    waits: bool = False  # for a decision, at a milestone


class BatchLeader:
    """Runs up to K orders at once on the rank of its slot.

    Args:
        say: called with each message, from the leader's thread.
        stall_s: how long the rank may show nothing until its orders are said to hang.
    """

    def __init__(self, say: Callable[[Message], None], stall_s: float) -> None:
        self._say, self._stall_s = say, stall_s
        self._lock = threading.Lock()
        self._rank: Connection | None = None
        self._held: dict[int, _Held] = {}
        self._leaving = ""  # why the rank is to end; empty: it is not
        self._heard_at = time.monotonic()

    def join(self, hello: Hello, connection: Connection) -> None:
        """The rank is up, and work can begin."""
        with self._lock:
            self._rank = connection
            connection.send(hello.meeting)
        threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
        self._say(Ready())

    def carry_out(self, task: Assignment) -> None:
        """Hand one more order to the rank."""
        with self._lock:
            if not self._held:
                self._heard_at = time.monotonic()
            self._held[task.order] = _Held(task)
            self._send(task)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """The controller's answer to a milestone; a `stop` may come at any time."""
        with self._lock:
            held = self._held.get(order)
            if held is not None:
                held.stop = held.stop or verdict == "stop"
                if held.waits or held.stop:  # a stop is seen at the next report, which waits not
                    self._answer(held)

    def leave(self, why: str) -> None:
        """End all orders with the epoch that they are at, for their trials to go on elsewhere."""
        with self._lock:
            self._send(Leave(why))  # before what it waits for, lest it begin another epoch
            self._leave(why)

    def _leave(self, why: str) -> None:
        """No order waits for a decision any more: its trial hears it elsewhere."""
        if self._leaving:
            return
        self._leaving = why
        self._say(Leaving(EVERY, why))
        for held in self._held.values():
            if held.waits:
                self._answer(held)

    def _answer(self, held: _Held) -> None:
        held.waits = False
        self._heard_at = time.monotonic()
        self._send(Answer(held.task.order, not held.stop))

    def _send(self, what: Assignment | Answer | Leave) -> None:
        if self._rank is not None:
            with suppress(OSError):  # a rank that is gone is missed by whoever watches it
                self._rank.send(what)

    def _listen(self, connection: Connection) -> None:
        with connection:
            while True:
                try:
                    said = connection.recv() if connection.poll(POLL_S) else None
                except (EOFError, OSError):
                    return
                with self._lock:
                    if said is None:
                        self._lose_patience()
                    else:
                        self._heard_at = time.monotonic()
                        self._hear(said)

    def _hear(self, said: Said) -> None:
        if isinstance(said, Warned):
            self._leave(f"the rank {TOLD}")
            return
        order = said.outcome.order if isinstance(said, Done) else said.order
        held = self._held.get(order)
        if held is None or isinstance(said, Beat):
            return  # of all orders, or of one that is over
        match said:
            case Told():
                self._report(held, said)
            case Keep():
                self._say(Kept(order, held.task.trial, said.saved))
            case Uses():
                self._say(Used(order, held.task.trial, said.data))
            case Done():
                del self._held[order]
                self._finish(held.task, said.outcome, clean=True)

    def _report(self, held: _Held, told: Told) -> None:
        task, report = held.task, told.report
        crossed = any(held.step < milestone <= report.step for milestone in task.milestones)
        held.step, held.waits = report.step, report.answered
        self._say(Reported(task.order, task.trial, report.step, report.metrics, report.saved))
        if held.waits and (not crossed or held.stop or self._leaving):
            self._answer(held)

    def _finish(self, task: Assignment, outcome: Outcome, clean: bool) -> None:
        if self._leaving and outcome.kind in ("stalled", "collateral"):
            outcome = replace(outcome, kind="preempt", message=self._leaving)
        failure = None if outcome.kind == "ended" else outcome
        self._say(Finished(task.order, task.trial, failure, clean, outcome.residues))

    def _lose_patience(self) -> None:
        """Say that all orders hang, once nothing has been heard of any for so long."""
        patient = any(held.waits for held in self._held.values())
        late = time.monotonic() > self._heard_at + self._stall_s + WRITING_S
        if not late or patient or not self._held:
            return
        held, self._held = self._held, {}
        message = (
            f"no sign of life from the process of {len(held)} trials for {self._stall_s:g} s "
            "(failure.stall); the stacks of all threads end the slot's log"
        )
        for order, each in held.items():
            self._finish(each.task, Outcome(order, "stalled", message), clean=False)
