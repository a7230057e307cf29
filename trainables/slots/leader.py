"""The leader of a slot: hands orders to the ranks, collects their reports, passes decisions on.

Leaders live where the decisions are made (the driver, or a Tune trial) and load no torch, so they
answer while the ranks compute. Ranks call in at a switchboard, over sockets: one process less a
slot than a leader of its own, and a message costs a fortieth of a call between Ray actors.
"""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from typing import Literal, Protocol

from trainables.slots.assignment import KINDS, Assignment, Outcome, log_file
from trainables.slots.preemption import TOLD
from trainables.slots.wire import (
    Address,
    Beat,
    Call,
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
    Said,
    Used,
    Uses,
    Warned,
    prompt,
)

GRACE_S = 5.0  # for the other ranks to come back after one failed
# For ranks that hang to write their stacks: on a busy machine one second was not always enough.
WRITING_S = 5.0
POLL_S = 1.0  # how often a thread looks whether it is still needed


class Host(Protocol):
    """Who takes calls that come in at a switchboard."""

    def join(self, hello: Hello, connection: Connection) -> None:
        """Somebody is there; called from a thread of its own."""


class Switchboard:
    """Where the ranks of all slots call in.

    Args:
        host: the address of this machine that ranks on others reach.
    """

    def __init__(self, host: str) -> None:
        self._key = secrets.token_bytes(32)
        self._server = socket.create_server((host, 0), backlog=128)
        self._server.settimeout(POLL_S)
        self._hosts: dict[str, Host] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="switchboard", daemon=True).start()

    def call(self, slot: str) -> Call:
        """What a rank of this slot needs to call in."""
        host, port = self._server.getsockname()[:2]
        return Call((str(host), int(port)), self._key, slot)

    def connect(self, slot: str, host: Host) -> None:
        """Put the calls of a slot's ranks through to its leader."""
        self._hosts[slot] = host

    def disconnect(self, slot: str) -> None:
        """Take no more calls from this slot."""
        self._hosts.pop(slot, None)

    def close(self) -> None:
        """Take no more calls at all."""
        self._closed.set()

    def _accept(self) -> None:
        with self._server:
            while not self._closed.is_set():
                with suppress(TimeoutError):
                    line, _ = self._server.accept()
                    # One that calls and says nothing keeps nobody else waiting.
                    greet = threading.Thread(target=self._greet, args=(line,), daemon=True)
                    greet.start()

    def _greet(self, line: socket.socket) -> None:
        line.setblocking(True)
        connection = Connection(line.detach())
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            hello: Hello = prompt(connection).recv()
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return
        host = self._hosts.get(hello.slot)
        if host is None:
            connection.close()
        else:
            host.join(hello, connection)


@dataclass
class _Current:
    """The order that the ranks have."""

    task: Assignment
    step: int = 0
    stop: bool = False
    leaving: str = ""  # why its place is taken from it; empty: it is not
    at_milestone: bool = False  # rank 0 waits for a decision
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    deadline: float | None = None  # for the ranks that are still to come back
    heard_at: float = field(default_factory=time.monotonic)  # of any rank

    @property
    def leaves(self) -> bool:
        """Whether it is to end here, before its time; one that is told to stop ends anyhow."""
        return bool(self.leaving) and not self.stop and self.step < self.task.until


class Leader:
    """Runs orders one after the other on the ranks of its slot.

    Args:
        say: called with each message, from the leader's thread.
        stall_s: how long all ranks may show nothing until an order is said to hang.
    """

    def __init__(self, world_size: int, say: Callable[[Message], None], stall_s: float) -> None:
        self._world_size = world_size
        self._say = say
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._ranks: dict[int, Connection] = {}
        self._meeting: Address | None = None
        self._current: _Current | None = None

    def join(self, hello: Hello, connection: Connection) -> None:
        """A rank is up; when all are, they learn where rank 0 meets them, and work can begin."""
        with self._lock:
            self._ranks[hello.rank] = connection
            self._meeting = hello.meeting or self._meeting
            if len(self._ranks) < self._world_size:
                return
            for each in self._ranks.values():
                each.send(self._meeting)
        threading.Thread(target=self._listen, name="leader", daemon=True).start()
        self._say(Ready())

    def carry_out(self, task: Assignment) -> None:
        """Hand an order to the ranks, which are idle."""
        with self._lock:
            self._current = _Current(task)
            for connection in self._ranks.values():
                with suppress(OSError):  # a rank that is gone is missed by whoever watches it
                    connection.send(task)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """The controller's answer to a milestone; a `stop` may come at any time."""
        with self._lock:
            current = self._current
            if current is not None and current.task.order == order:
                current.stop = current.stop or verdict == "stop"
                self._answer(current)

    def leave(self, why: str) -> None:
        """End the order at its next report that is not its last, for it to go on elsewhere."""
        with self._lock:
            if self._current is not None:
                self._leave(self._current, why)

    def _leave(self, current: _Current, why: str) -> None:
        if not current.leaving:
            current.leaving = why
            self._say(Leaving(current.task.order, why))
            if current.leaves:
                self._answer(current)

    def _answer(self, current: _Current) -> None:
        """Let rank 0 leave its milestone."""
        if current.at_milestone:
            current.at_milestone = False
            current.heard_at = time.monotonic()
            with suppress(OSError):
                answer = Leave(current.leaving) if current.leaves else not current.stop
                self._ranks[0].send(answer)

    def _listen(self) -> None:
        connections = {connection: rank for rank, connection in self._ranks.items()}
        while connections:
            for connection in wait(list(connections), timeout=POLL_S):
                assert isinstance(connection, Connection)
                try:
                    said = connection.recv()
                except (EOFError, OSError):
                    connection.close()
                    del connections[connection]
                    continue
                with self._lock:
                    self._hear(connections[connection], said)
            with self._lock:
                self._lose_patience()

    def _hear(self, rank: int, said: Said) -> None:
        current = self._current
        if current is None:
            return
        task = current.task
        if isinstance(said, Keep | Uses | Beat | Warned) and said.order != task.order:
            return  # from a thread that outlived its order
        current.heard_at = time.monotonic()
        if isinstance(said, Done):
            self._finish(current, rank, said.outcome)
            return
        if isinstance(said, Keep):
            self._say(Kept(task.order, task.trial, said.saved))
            return
        if isinstance(said, Uses):
            self._say(Used(task.order, task.trial, said.data))
            return
        if isinstance(said, Warned):
            self._leave(current, f"rank {rank} {TOLD}")
        if isinstance(said, Beat | Warned):
            return
        crossed = any(current.step < milestone <= said.step for milestone in task.milestones)
        current.step = said.step
        current.at_milestone = said.answered
        self._say(Reported(task.order, task.trial, said.step, said.metrics, said.saved))
        if not crossed or current.stop or current.leaves:
            self._answer(current)

    def _finish(self, current: _Current, rank: int, outcome: Outcome) -> None:
        if outcome.order != current.task.order:
            return
        current.outcomes[rank] = outcome
        if len(current.outcomes) == self._world_size:
            self._conclude(current, clean=True)
        elif outcome.kind not in ("ended", "preempt") and current.deadline is None:
            # The others may be in a collective that never ends, or at a milestone.
            current.deadline = time.monotonic() + GRACE_S
            current.stop = True
            self._answer(current)

    def _lose_patience(self) -> None:
        current, now = self._current, time.monotonic()
        if current is None:
            return
        if current.deadline is not None:
            if now > current.deadline:
                self._conclude(current, clean=False)
        elif not current.at_milestone and now > current.heard_at + self._stall_s + WRITING_S:
            self._stall(current)

    def _stall(self, current: _Current) -> None:
        """All wait for one another, or for nothing: a rank at work would have been heard."""
        task = current.task
        silent = [rank for rank in range(self._world_size) if rank not in current.outcomes]
        logs = [log_file(Path(), task.trial, task.order, rank) for rank in silent]
        ranks = f"rank{'s' if silent[1:] else ''} {_listed(silent)}"
        message = (
            f"no sign of life from {ranks} for {self._stall_s:g} s (failure.stall); "
            f"the stacks of all threads end {_listed(logs)}"
        )
        current.outcomes[silent[0]] = Outcome(task.order, "stalled", message)
        self._conclude(current, clean=False)

    def _conclude(self, current: _Current, clean: bool) -> None:
        outcomes = list(current.outcomes.values())
        failures = sorted(
            (outcome for outcome in outcomes if outcome.kind != "ended"),
            key=lambda outcome: KINDS.index(outcome.kind),
        )
        residues = tuple(dict.fromkeys(text for each in outcomes for text in each.residues))
        failure = failures[0] if failures else None
        if current.leaving and failure is not None and failure.kind in ("stalled", "collateral"):
            failure = replace(failure, kind="preempt", message=current.leaving)
        task = current.task
        self._current = None
        self._say(Finished(task.order, task.trial, failure, clean, residues))


def _listed(items: Sequence[object]) -> str:
    """As in a sentence: a, b and c."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
