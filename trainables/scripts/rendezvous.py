"""What torchrun tells its processes, told by us: who they are, and where they meet.

A port that is only looked for can be taken before it is used. Here rank 0 of an order holds one:
bound and not listening, with SO_REUSEADDR, as servers bind too (torch's store, gRPC). The system
gives it to nobody else who asks for any port, and still lets the one who asks for this very port
listen on it (Linux; measured with TCPStore, both its backends).
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Berth:
    """Where a rank runs, as the others must know it."""

    host: str
    gpus: str | None  # CUDA_VISIBLE_DEVICES; None: not set

    @classmethod
    def here(cls, host: str) -> "Berth":
        """This process's."""
        return cls(host, os.environ.get(GPUS))


@dataclass(frozen=True)
class Seat:
    """A rank among the ranks of its slot; ranks with one host are on one node."""

    rank: int
    berths: tuple[Berth, ...]  # of all ranks
    port: int  # at rank 0's host, for this order

    @property
    def variables(self) -> dict[str, str]:
        """For code in the rank's own process, which sees its own GPU only, so it is alone there."""
        return {
            "RANK": f"{self.rank}",
            "WORLD_SIZE": f"{len(self.berths)}",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.berths[0].host,
            "MASTER_PORT": f"{self.port}",
        }

    @property
    def neighbours(self) -> list[int]:
        """The ranks on this node, this one included."""
        own = self.berths[self.rank].host
        return [rank for rank, berth in enumerate(self.berths) if berth.host == own]

    @property
    def first_of_node(self) -> bool:
        """Whether this rank starts the node's process where there is one a node."""
        return self.neighbours[0] == self.rank

    @property
    def nodes(self) -> list[str]:
        """Hosts, rank 0's first."""
        return list(dict.fromkeys(berth.host for berth in self.berths))

    @property
    def for_rank(self) -> dict[str, str]:
        """For a process of this rank's own.

        With a GPU each, it sees those of all the node's ranks, as torchrun's processes do, and its
        own is number LOCAL_RANK. With several each, it sees its own, and is alone.
        """
        if any("," in (berth.gpus or "") for berth in self.berths):
            return self.variables
        local = {
            "LOCAL_RANK": f"{self.neighbours.index(self.rank)}",
            "LOCAL_WORLD_SIZE": f"{len(self.neighbours)}",
        }
        return {**self.variables, **local, **self._gpus}

    @property
    def for_node(self) -> dict[str, str]:
        """For the one process of this node, which starts the node's ranks itself.

        torchrun takes PET_NAME for its option --NAME.
        """
        host, port = self.berths[0].host, f"{self.port}"
        counts = {
            "NNODES": f"{len(self.nodes)}",
            "NODE_RANK": f"{self.nodes.index(self.berths[self.rank].host)}",
            "NPROC_PER_NODE": f"{len(self.neighbours)}",
        }
        meeting = {"MASTER_ADDR": host, "MASTER_PORT": port}
        for_torchrun = {f"PET_{name}": text for name, text in {**counts, **meeting}.items()}
        return {
            **{"WORLD_SIZE": f"{len(self.berths)}", **counts, **meeting},
            **for_torchrun,
            **self._gpus,
        }

    @property
    def _gpus(self) -> dict[str, str]:
        gpus = [self.berths[rank].gpus for rank in self.neighbours]
        found = ",".join(dict.fromkeys(each for each in gpus if each))
        return {GPUS: found} if found else {}


@contextmanager
def held_port() -> Iterator[int]:
    """A port of this machine that nobody is given who does not ask for it by number."""
    with closing(socket.socket()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield int(held.getsockname()[1])


@contextmanager
def alone(host: str = LOOPBACK) -> Iterator[Seat]:
    """The seat of a rank without others."""
    with held_port() as port:
        yield Seat(0, (Berth.here(host),), port)
