"""The variables that torchrun sets for its processes: rank, world size, master address and port.

A free port that is merely looked up can be taken before it is used. Here rank 0 of an order holds a
port bound but not listening, with SO_REUSEADDR, as servers bind too (torch's store, gRPC). The
system gives that port to no process asking for any port, and still lets a process asking for this
very port listen on it (Linux; measured with TCPStore, both its backends).
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class RankAddress:
    """The host and GPUs of a rank, as the other ranks need to know them."""

    host: str
    gpus: str | None  # CUDA_VISIBLE_DEVICES; None: not set

    @classmethod
    def here(cls, host: str) -> "RankAddress":
        """Return the address of this process."""
        return cls(host, os.environ.get(GPUS))


@dataclass(frozen=True)
class RankEnv:
    """A rank among the ranks of its slot; ranks with the same host are on one node."""

    rank: int
    addresses: tuple[RankAddress, ...]  # of all ranks
    port: int  # at rank 0's host, for this order

    @property
    def variables(self) -> dict[str, str]:
        """Variables for code in the rank's own process, which is alone as it sees only its GPU."""
        return {
            "RANK": f"{self.rank}",
            "WORLD_SIZE": f"{len(self.addresses)}",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.addresses[0].host,
            "MASTER_PORT": f"{self.port}",
        }

    @property
    def has_peers(self) -> bool:
        """Whether there are other ranks."""
        return len(self.addresses) > 1

    @property
    def ranks_on_node(self) -> list[int]:
        """The ranks on this node, this one included."""
        own = self.addresses[self.rank].host
        return [rank for rank, address in enumerate(self.addresses) if address.host == own]

    @property
    def first_of_node(self) -> bool:
        """Whether this rank starts the program if there is one program per node."""
        return self.ranks_on_node[0] == self.rank

    @property
    def nodes(self) -> list[str]:
        """The hosts, that of rank 0 first."""
        return list(dict.fromkeys(address.host for address in self.addresses))

    @property
    def for_rank(self) -> dict[str, str]:
        """Variables for a program started by this rank alone.

        With one GPU per rank, the program sees the GPUs of all ranks of the node, as torchrun's
        processes do, and its own is number LOCAL_RANK. With several GPUs per rank, it sees its own
        GPUs, and is alone.
        """
        if any("," in (address.gpus or "") for address in self.addresses):
            return self.variables
        local = {
            "LOCAL_RANK": f"{self.ranks_on_node.index(self.rank)}",
            "LOCAL_WORLD_SIZE": f"{len(self.ranks_on_node)}",
        }
        return {**self.variables, **local, **self._gpus}

    @property
    def for_node(self) -> dict[str, str]:
        """Variables for the single program of this node, which starts the node's ranks itself.

        torchrun takes PET_NAME for its option --NAME.
        """
        host, port = self.addresses[0].host, f"{self.port}"
        counts = {
            "NNODES": f"{len(self.nodes)}",
            "NODE_RANK": f"{self.nodes.index(self.addresses[self.rank].host)}",
            "NPROC_PER_NODE": f"{len(self.ranks_on_node)}",
        }
        master = {"MASTER_ADDR": host, "MASTER_PORT": port}
        for_torchrun = {f"PET_{name}": text for name, text in {**counts, **master}.items()}
        return {
            **{"WORLD_SIZE": f"{len(self.addresses)}", **counts, **master},
            **for_torchrun,
            **self._gpus,
        }

    @property
    def _gpus(self) -> dict[str, str]:
        gpus = [self.addresses[rank].gpus for rank in self.ranks_on_node]
        visible = ",".join(dict.fromkeys(gpu for gpu in gpus if gpu))
        return {GPUS: visible} if visible else {}


@contextmanager
def reserved_port() -> Iterator[int]:
    """Hold a port of this machine that only a process asking for its number can use."""
    with closing(socket.socket()) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield int(holder.getsockname()[1])


@contextmanager
def single_rank(host: str = LOOPBACK) -> Iterator[RankEnv]:
    """Provide the environment of a single rank, with a reserved port."""
    with reserved_port() as port:
        yield RankEnv(0, (RankAddress.here(host),), port)
