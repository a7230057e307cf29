"""The coordinator of a slot: it sends orders to the ranks, collects reports, passes on decisions.

Coordinators live in the process that decides (the driver, or a Tune trial) and do not import torch,
so they answer while the ranks compute. Ranks connect to a switchboard over sockets: this saves a
process for each slot, and a message costs a fortieth of a call between Ray actors.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Literal, Protocol

from trainables.link import Report
from trainables.listener import Known, Listener
from trainables.order import Order
from trainables.runtime.assignment import KINDS, Assignment, Outcome, OutcomeKind, log_file
from trainables.runtime.wire import (
    Address,
    Beat,
    Call,
    Hello,
    Leave,
    Message,
    PreemptionNotice,
    PreemptionStarted,
    RankMessage,
    Ready,
    disable_nagle,
    placed,
)
from trainables.stop_signals import SIGTERM_TEXT

GRACE_S = 5.0  # for the other ranks to finish after one has failed
# For hanging ranks to write their stacks: on a busy machine one second was not always enough.
WRITING_S = 5.0
BY_RANK: tuple[OutcomeKind, ...] = ("user", "oom", "oversize", "storage", "collateral")
POLL_S = 1.0  # seconds between a thread's checks whether it is still needed


class Host(Protocol):
    """Receiver of the connections that a slot's ranks make to a switchboard."""

    def join(self, hello: Hello, connection: Connection) -> None:
        """Take over the connection of a rank; called from a thread of its own."""


class Switchboard:
    """The socket that the ranks of all slots connect to.

    Args:
        host: the address of this machine that ranks on other machines can reach.
    """

    def __init__(self, host: str) -> None:
        self._key = secrets.token_bytes(32)
        self._hosts: dict[str, Host] = {}
        self._listener = Listener(host, "switchboard", self._greet)

    def call(self, slot: str) -> Call:
        """Return the address and key by which a rank of this slot connects."""
        return Call(self._listener.address, self._key, slot)

    def connect(self, slot: str, host: Host) -> None:
        """Pass connections of this slot's ranks on to its coordinator."""
        self._hosts[slot] = host

    def disconnect(self, slot: str) -> None:
        """Accept no more connections from this slot."""
        self._hosts.pop(slot, None)

    def close(self) -> None:
        """Accept no more connections at all."""
        self._listener.close()

    def _greet(self, line: socket.socket, known: Known) -> None:
        try:
            # A descriptor of its own: the listener may close the connection meanwhile.
            connection = Connection(os.dup(line.fileno()))
        except OSError:  # the process may open no more files
            return
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            known()  # before its hello, a rank imports torch, which may take a minute
            hello: Hello = disable_nagle(connection).recv()
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return
        line.close()
        host = self._hosts.get(hello.slot)
        if host is None:
            connection.close()
        else:
            host.join(hello, connection)


@dataclass
class _Current:
    """The order that the ranks are carrying out."""

    order: Order
    step: int = 0
    judged: int = 0  # the last step reported with the sweep's metrics
    stop: bool = False
    leaving: str = ""  # why the order is preempted; empty: it is not
    waits: bool = False  # rank 0 waits for the answer to its report
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by rank
    deadline: float | None = None  # for the ranks that have not finished
    heard_at: float = field(default_factory=time.monotonic)  # the last message of any rank
    energy: dict[int, float] = field(default_factory=dict)  # kWh, by rank that has said

    @property
    def energy_kwh(self) -> float | None:
        """The energy of all ranks, as far as they have said; None: it is not measured."""
        return sum(self.energy.values()) if self.energy else None

    @property
    def leaves(self) -> bool:
        """Whether the order is to end early, at this report; a stopped order ends anyway."""
        return bool(self.leaving) and not self.stop and self.step != self.order.until


# The most likely reason why several ranks wait for each other.
UNEQUAL = (
    ". Ranks that share a model (fsdp, tensor, pipeline) must call it equally often: one that "
    "generates a longer text in evaluate, or has a batch more, waits for ever"
)
RETURNED = (
    "; rank {rank} had already returned from the trainable: all ranks must report equally often"
)


class Coordinator:
    """Run orders one after the other on the ranks of its slot.

    Args:
        say: called with each message, from the coordinator's thread.
        stall_s: seconds without a sign of life of any rank after which an order counts as hanging.
    """

    def __init__(self, world_size: int, say: Callable[[Message], None], stall_s: float) -> None:
        self._world_size = world_size
        self._say = say
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._ranks: dict[int, Connection] = {}
        self._hellos: dict[int, Hello] = {}
        self._store_address: Address | None = None
        self._current: _Current | None = None

    def join(self, hello: Hello, connection: Connection) -> None:
        """Register a rank; once all are there, send them the address of rank 0's store."""
        with self._lock:
            self._ranks[hello.rank] = connection
            self._hellos[hello.rank] = hello
            self._store_address = hello.rank_store or self._store_address
            if len(self._ranks) < self._world_size:
                return
            for rank in self._ranks.values():
                rank.send(self._store_address)
        threading.Thread(target=self._listen, name="leader", daemon=True).start()
        self._say(Ready())

    def carry_out(self, assignment: Assignment) -> None:
        """Send an order to the ranks, which must be idle."""
        with self._lock:
            self._current = _Current(assignment.order)
            hellos = [self._hellos[rank] for rank in sorted(self._hellos)]
            if (place := placed(assignment.order.id, hellos)) is not None:
                self._say(place)
            for connection in self._ranks.values():
                with suppress(OSError):  # whoever watches the rank notices that it is gone
                    connection.send(assignment)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass on the controller's answer to a milestone; a `stop` may come at any time."""
        with self._lock:
            current = self._current
            if current is not None and current.order.id == order:
                current.stop = current.stop or verdict == "stop"
                self._answer(current)

    def leave(self, why: str) -> None:
        """End the order at its next report but its last, so that the trial resumes elsewhere."""
        with self._lock:
            if self._current is not None:
                self._leave(self._current, why)

    def _leave(self, current: _Current, why: str) -> None:
        if not current.leaving:
            current.leaving = why
            self._say(PreemptionStarted(current.order.id, why))
            if current.leaves:
                self._answer(current)

    def _answer(self, current: _Current) -> None:
        """Answer rank 0 if it waits."""
        if current.waits:
            current.waits = False
            current.heard_at = time.monotonic()
            with suppress(OSError):
                answer = Leave(current.leaving) if current.leaves else not current.stop
                self._ranks[0].send(answer)

    def _listen(self) -> None:
        with DefaultSelector() as selector:
            for rank, connection in self._ranks.items():
                selector.register(connection, EVENT_READ, rank)
            while selector.get_map():
                for key, _ in selector.select(POLL_S):
                    connection = self._ranks[key.data]
                    try:
                        message = connection.recv()
                    except (EOFError, OSError):
                        selector.unregister(connection)
                        connection.close()
                        continue
                    with self._lock:
                        self._handle(key.data, message)
                with self._lock:
                    self._check_deadlines()

    def _handle(self, rank: int, message: RankMessage) -> None:
        current = self._current
        if current is None or message.order != current.order.id:
            return  # sent by a thread that outlived its order
        current.heard_at = time.monotonic()
        if isinstance(message, Beat | Report | Outcome) and message.energy_kwh is not None:
            current.energy[rank] = message.energy_kwh
        match message:
            case Beat():
                pass
            case PreemptionNotice():
                self._leave(current, f"rank {rank} {SIGTERM_TEXT}")
            case Outcome():
                self._finish(current, rank, message)
            case Report(step=step):
                decision_due = message.judged and current.order.reaches_milestone(
                    current.judged, step
                )
                current.judged = step if message.judged else current.judged
                current.step, current.waits = step, current.order.needs_answer(step)
                self._say(replace(message, energy_kwh=current.energy_kwh))
                if not decision_due or current.stop or current.leaves:
                    self._answer(current)
            case _:
                self._say(message)

    def _finish(self, current: _Current, rank: int, outcome: Outcome) -> None:
        current.outcomes[rank] = outcome
        if len(current.outcomes) == self._world_size:
            self._conclude(current, clean=True)
        elif outcome.kind not in ("ended", "preempt") and current.deadline is None:
            # The other ranks may be in a collective that never ends, or at a milestone.
            current.deadline = time.monotonic() + GRACE_S
            current.stop = True
            self._answer(current)

    def _check_deadlines(self) -> None:
        current, now = self._current, time.monotonic()
        if current is None:
            return
        if current.deadline is not None:
            if now > current.deadline:
                self._conclude(current, clean=False)
        elif not current.waits and now > current.heard_at + self._stall_s + WRITING_S:
            self._stall(current)

    def _stall(self, current: _Current) -> None:
        """Conclude an order as stalled: a rank at work would have given a sign of life."""
        order = current.order
        silent = [rank for rank in range(self._world_size) if rank not in current.outcomes]
        logs = [log_file(Path(), order.trial, order.id, rank) for rank in silent]
        ranks = f"rank{'s' if silent[1:] else ''} {_listed(silent)}"
        message = (
            f"no sign of life from {ranks} for {self._stall_s:g} s (failure.stall); "
            f"the stacks of all threads end {_listed(logs)}{UNEQUAL if silent[1:] else ''}"
        )
        current.outcomes[silent[0]] = Outcome(order.id, "stalled", message)
        self._conclude(current, clean=False)

    def _conclude(self, current: _Current, clean: bool) -> None:
        """End the order with its worst outcome; if it has not failed, with that of rank 0."""
        ranks = sorted(current.outcomes)
        outcomes = [current.outcomes[rank] for rank in ranks]
        failed = [rank for rank in ranks if current.outcomes[rank].kind != "ended"]
        rank = min(failed or ranks, key=lambda rank: KINDS.index(current.outcomes[rank].kind))
        outcome = current.outcomes[rank]
        if (
            outcome.kind in BY_RANK
            and len({outcome_of_rank.message for outcome_of_rank in outcomes}) > 1
        ):
            message = f"rank {rank} of {self._world_size}:\n{outcome.message}"
            first = next(iter(current.outcomes))
            if outcome.kind == "collateral" and first not in failed:
                message += RETURNED.format(rank=first)
            outcome = replace(outcome, message=message)
        if current.leaving and outcome.kind in ("stalled", "collateral"):
            outcome = replace(outcome, kind="preempt", message=current.leaving)
        leaks = tuple(dict.fromkeys(text for outcome in outcomes for text in outcome.leaks))
        self._current = None
        energy_kwh = current.energy_kwh
        self._say(replace(outcome, leaks=leaks, clean=clean, energy_kwh=energy_kwh))


def _listed(items: Sequence[object]) -> str:
    """Join items as in a sentence: a, b and c."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
