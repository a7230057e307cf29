"""The messages between coordinator and ranks, and the connections that carry them.

The connections are plain sockets, authenticated by a key that travels with the ranks: a message
costs some 15 microseconds of CPU on either side, a call between Ray actors 20 to 40 times that
(measured on Ray 2.60, two cores).
"""

import os
import socket
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Literal, NamedTuple

from trainables.limits import Energy, Text
from trainables.link import AboutOrder, Report, Unanswered
from trainables.runtime.assignment import Outcome

Address = tuple[str, int]


class Call(NamedTuple):
    """The address, key and slot name by which a rank connects to its coordinator."""

    address: Address
    key: bytes
    slot: str


class Hello(NamedTuple):
    """First message of a rank; that of a group's rank 0 has the address of its store."""

    slot: str
    rank: int
    rank_store: Address | None
    device: str = ""  # the model of the rank's GPU, or of its CPU
    node: str = ""
    lane: int = 0  # the order's place on the slot, where it has several
    unmeasured: str = ""  # what of its energy is not measured, and why; empty: all is


@dataclass(frozen=True)
class OrderPlaced(AboutOrder):
    """The devices' models and the nodes of the ranks that carry out an order."""

    device: Text  # empty: unknown
    node: Text = ""
    unmeasured: Text = ""  # what of the energy is not measured, and why; empty: all is
    type: Literal["placed"] = "placed"


@dataclass(frozen=True)
class Beat(AboutOrder):
    """A sign of life of the rank, or of the agent that has the order."""

    energy_kwh: Energy | None = None  # of the order so far, on this rank; None: not said
    type: Literal["beat"] = "beat"


class PreemptionNotice(NamedTuple):
    """Notice that the rank's process received SIGTERM."""

    order: int


class Leave(NamedTuple):
    """Answer to a report of rank 0: end the order here; its trial resumes elsewhere."""

    why: str


class Ready(NamedTuple):
    """To the owner of the slot: all ranks are up."""


class PreemptionStarted(NamedTuple):
    """To the owner of the slot: the order is preempted; its outcome follows, if time permits."""

    order: int
    why: str


# About an order: the coordinator writes OrderPlaced; rank 0 sends the others, and the coordinator
# passes them on. An outcome comes from each rank, which is then ready for another order; the
# coordinator passes on that of the whole group.
OrderMessage = OrderPlaced | Report | Unanswered | Outcome
RankMessage = OrderMessage | Beat | PreemptionNotice  # of a rank
Message = OrderMessage | Ready | PreemptionStarted  # to the owner of the slot


@dataclass(frozen=True)
class CoordinatorConnection:
    """A rank's end of its connection: any thread may send, one thread at a time may receive."""

    connection: Connection
    _send_lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: object) -> None:
        """Send a message; raises OSError if the coordinator is gone."""
        with self._send_lock:
            self.connection.send(message)

    def receive(self) -> Any:
        """Wait for the coordinator's next message; raises EOFError or OSError if it is gone."""
        return self.connection.recv()


def placed(order: int, hellos: Iterable[Hello]) -> OrderPlaced | None:
    """Return where the ranks of these hellos carry out an order; None: they did not say."""
    ranks = list(hellos)
    devices = dict.fromkeys(rank.device for rank in ranks if rank.device)
    nodes = dict.fromkeys(rank.node for rank in ranks if rank.node)
    if not devices and not nodes:
        return None
    unmeasured = dict.fromkeys(rank.unmeasured for rank in ranks if rank.unmeasured)
    return OrderPlaced(order, " + ".join(devices), " + ".join(nodes), ", ".join(unmeasured))


def connect(call: Call) -> "Connection":
    """Connect to the coordinator."""
    # multiprocessing's own Client takes a host for a name of IPv4 (Python 3.11).
    connection = Connection(socket.create_connection(call.address).detach())
    try:
        answer_challenge(connection, call.key)
        deliver_challenge(connection, call.key)
    except BaseException:
        connection.close()
        raise
    return disable_nagle(connection)


def disable_nagle(connection: "Connection") -> "Connection":
    """Send small messages at once: two in a row would wait 40 ms for an acknowledgement (Nagle)."""
    with closing(socket.socket(fileno=os.dup(connection.fileno()))) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def own_host(connection: "Connection") -> str:
    """Return the address of this machine that the other end of a connection sees."""
    with closing(socket.socket(fileno=os.dup(connection.fileno()))) as line:
        return str(line.getsockname()[0])
