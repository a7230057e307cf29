"""What leader and ranks say to each other, and the connections that carry it.

Plain sockets, authenticated by a key that travels with the ranks: a message costs some 15
microseconds of CPU on either side, a call between Ray actors 20 to 40 times that (measured on Ray
2.60, two cores).
"""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from typing import Any, NamedTuple

from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet
from trainables.slots.assignment import Outcome

Address = tuple[str, int]


class Call(NamedTuple):
    """What a rank needs to call its leader: where, with which key, for which slot."""

    address: Address
    key: bytes
    slot: str


class Hello(NamedTuple):
    """A rank is up; rank 0 of a group says where the others meet it."""

    slot: str
    rank: int
    meeting: Address | None


class Report(NamedTuple):
    """Rank 0's metrics; the leader answers whether to go on, unless it is the order's last."""

    step: int
    metrics: Mapping[str, float]
    saved: Saved | None
    answered: bool


class Keep(NamedTuple):
    """A checkpoint of rank 0's that no report brings; nobody answers."""

    order: int  # it may be over by now
    saved: Saved


class Uses(NamedTuple):
    """Which samples the order's trial has; nobody answers."""

    order: int
    data: tuple[DataSet, ...]


class Beat(NamedTuple):
    """The rank is at work."""

    order: int


class Warned(NamedTuple):
    """The rank was told to end."""

    order: int


class Leave(NamedTuple):
    """To rank 0, in answer to a report: the order ends here, and its trial goes on elsewhere."""

    why: str


class Done(NamedTuple):
    """How the order went on one rank; it is ready for the next."""

    outcome: Outcome


class Ready(NamedTuple):
    """To whoever leads: all ranks are up."""


class Reported(NamedTuple):
    """To whoever leads: a report."""

    order: int
    trial: str
    step: int
    metrics: Mapping[str, float]
    saved: Saved | None


class Kept(NamedTuple):
    """To whoever leads: a checkpoint that no report brings."""

    order: int
    trial: str
    saved: Saved


class Used(NamedTuple):
    """To whoever leads: which samples the order's trial has."""

    order: int
    trial: str
    data: tuple[DataSet, ...]


class Leaving(NamedTuple):
    """To whoever leads: the order's place is taken from it; its end follows, if there is time."""

    order: int
    why: str


class Finished(NamedTuple):
    """To whoever leads: the order is over. `clean`: the ranks can take the next one."""

    order: int
    trial: str
    failure: Outcome | None
    clean: bool
    residues: tuple[str, ...]


Said = Report | Keep | Uses | Beat | Warned | Done  # by a rank
Message = Ready | Reported | Kept | Used | Leaving | Finished


@dataclass(frozen=True)
class Line:
    """A rank's end of its connection; any thread may speak, one at a time listens."""

    connection: Connection
    _speaking: threading.Lock = field(default_factory=threading.Lock)

    def say(self, what: tuple[object, ...]) -> None:
        """Send one of the messages; the leader may be gone, which raises OSError."""
        with self._speaking:
            self.connection.send(what)

    def hear(self) -> Any:
        """Wait for what the leader sends; EOFError or OSError: it is gone."""
        return self.connection.recv()


def dial(call: Call) -> "Connection":
    """A connection to the leader."""
    return prompt(Client(call.address, authkey=call.key))


def prompt(connection: "Connection") -> "Connection":
    """Send small messages at once: two in a row would wait 40 ms for an acknowledgement."""
    with closing(socket.socket(fileno=os.dup(connection.fileno()))) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def own_host(connection: "Connection") -> str:
    """The address of this machine that the other end of a connection sees."""
    with closing(socket.socket(fileno=os.dup(connection.fileno()))) as line:
        return str(line.getsockname()[0])
