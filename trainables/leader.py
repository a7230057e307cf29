"""The leader of a slot: hands orders to the ranks, collects their reports, passes decisions on.

It is no rank and loads no torch, so it answers while the ranks compute. One thread listens to the
ranks; the methods are called from others (those of a Ray actor, or of a Tune trial).
"""

import queue
import secrets
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from typing import Literal

from trainables.assignment import Assignment, Outcome
from trainables.wire import (
    Address,
    Done,
    Finished,
    Hello,
    Message,
    Ready,
    Report,
    Reported,
    prompt,
)

GRACE_S = 5.0  # for the other ranks to come back after one failed
EPILOGUE_S = 0.02  # how long an order's last report waits for its end, to travel with it


@dataclass
class _Current:
    """The order that the ranks have."""

    task: Assignment
    step: int = 0
    stop: bool = False
    at_milestone: bool = False  # rank 0 waits for a decision
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    deadline: float | None = None  # for the ranks that are still to come back


class Leader:
    """Runs orders one after the other on the ranks of its slot.

    Args:
        host: the address of this machine that ranks on others reach.
    """

    def __init__(self, world_size: int, host: str) -> None:
        self._world_size = world_size
        self._key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), authkey=self._key)
        self._lock = threading.Lock()
        self._ranks: dict[int, Connection] = {}
        self._out: queue.Queue[Message] = queue.Queue()
        self._current: _Current | None = None
        threading.Thread(target=self._listen, name="leader", daemon=True).start()

    def address(self) -> tuple[Address, bytes]:
        """Where ranks reach this leader, and the key that they need."""
        host, port = self._listener.address
        return (str(host), int(port)), self._key

    def carry_out(self, task: Assignment) -> list[Message]:
        """Hand an order to the ranks; what happened first."""
        with self._lock:
            self._current = _Current(task)
            for connection in self._ranks.values():
                connection.send(task)
        return self.messages()

    def messages(self) -> list[Message]:
        """What happened since the last call; waits for the first."""
        found = [self._out.get()]
        current = self._current
        if current is not None and current.step >= current.task.until:
            try:
                found.append(self._out.get(timeout=EPILOGUE_S))
            except queue.Empty:
                return found
        while not self._out.empty():
            found.append(self._out.get())
        return found

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """The controller's answer to a milestone; a `stop` may come at any time."""
        with self._lock:
            current = self._current
            if current is not None and current.task.order == order:
                current.stop = current.stop or verdict == "stop"
                self._answer(current)

    def _answer(self, current: _Current) -> None:
        """Let rank 0 leave its milestone."""
        if current.at_milestone:
            current.at_milestone = False
            self._ranks[0].send(not current.stop)

    def _listen(self) -> None:
        self._gather()
        self._out.put(Ready())
        connections = {connection: rank for rank, connection in self._ranks.items()}
        while connections:
            for connection in wait(list(connections), timeout=1.0):
                assert isinstance(connection, Connection)
                try:
                    said = connection.recv()
                except (EOFError, OSError):
                    del connections[connection]  # the driver watches the rank itself
                    continue
                with self._lock:
                    self._hear(connections[connection], said)
            with self._lock:
                self._lose_patience()

    def _gather(self) -> None:
        """Wait until all ranks are here, and tell the others where rank 0 meets them."""
        meeting: Address | None = None
        waiting: list[Connection] = []
        while len(self._ranks) < self._world_size:
            try:
                connection = prompt(self._listener.accept())
                hello: Hello = connection.recv()
            except (AuthenticationError, EOFError, OSError):
                continue  # not one of ours
            self._ranks[hello.rank] = connection
            meeting = hello.meeting or meeting
            waiting.append(connection)
            if meeting is not None:
                for each in waiting:
                    each.send(meeting)
                waiting.clear()

    def _hear(self, rank: int, said: Report | Done) -> None:
        current = self._current
        if current is None:
            return
        if isinstance(said, Done):
            self._finish(current, rank, said.outcome)
            return
        task = current.task
        crossed = any(current.step < milestone <= said.step for milestone in task.milestones)
        current.step = said.step
        current.at_milestone = said.answered
        self._out.put(Reported(task.order, task.trial, said.step, said.metrics, said.saved))
        if not crossed or current.stop:
            self._answer(current)

    def _finish(self, current: _Current, rank: int, outcome: Outcome) -> None:
        if outcome.order != current.task.order:
            return
        current.outcomes[rank] = outcome
        if len(current.outcomes) == self._world_size:
            self._conclude(current, clean=True)
        elif outcome.kind != "ended" and current.deadline is None:
            # The others may be in a collective that never ends, or at a milestone.
            current.deadline = time.monotonic() + GRACE_S
            current.stop = True
            self._answer(current)

    def _lose_patience(self) -> None:
        current = self._current
        deadline = None if current is None else current.deadline
        if current is not None and deadline is not None and time.monotonic() > deadline:
            self._conclude(current, clean=False)

    def _conclude(self, current: _Current, clean: bool) -> None:
        outcomes = list(current.outcomes.values())
        failures = sorted(
            (outcome for outcome in outcomes if outcome.kind != "ended"),
            key=lambda outcome: outcome.kind == "collateral",
        )
        residues = tuple(dict.fromkeys(text for each in outcomes for text in each.residues))
        failure = failures[0] if failures else None
        task = current.task
        self._current = None
        self._out.put(Finished(task.order, task.trial, failure, clean, residues))
