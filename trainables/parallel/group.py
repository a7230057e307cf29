"""Where the ranks of a slot meet, and the process group that each order gets.

Rank 0 listens on a port that the system chose and keeps the store open for the slot's life (a port
probed for beforehand can be taken by somebody else). A group lives under a prefix of the store
that is its order's own: making one anew takes some milliseconds, and one left over from a failed
order can hang the next.
"""

import datetime
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import psutil
import torch.distributed as dist

# Warms a rank up: DDP's first use imports some 800 modules more, which takes 1.5 s.
import trainables.parallel.ddp  # noqa: F401
from trainables.scripts.rendezvous import Berth

# Rank 0 may evaluate alone for hours while the others wait; a rank that died is seen at once.
PATIENCE = datetime.timedelta(days=7)


class PeerLost(Exception):
    """Another rank left while this one waited for it."""


@dataclass
class Meeting:
    """The open store of a slot's ranks."""

    host: str
    port: int
    rank: int
    world_size: int
    gpu: bool
    store: dist.TCPStore
    berths: tuple[Berth, ...] = field(default=(), init=False)  # where each rank runs

    @classmethod
    def open(cls, host: str, world_size: int, gpu: bool) -> "Meeting":
        """Rank 0's side: listen on a free port."""
        store = dist.TCPStore(host, 0, None, True, PATIENCE, wait_for_workers=False)
        return cls(host, store.port, 0, world_size, gpu, store)

    @classmethod
    def join(cls, host: str, port: int, rank: int, world_size: int, gpu: bool) -> "Meeting":
        """The side of the others."""
        store = dist.TCPStore(host, port, None, False, PATIENCE, wait_for_workers=False)
        return cls(host, port, rank, world_size, gpu, store)

    def introduce(self, own: Berth) -> None:
        """Tell the others where this rank runs, and learn where they do."""
        self.store.set(f"berth-{self.rank}", json.dumps(asdict(own)))
        found = [self.store.get(f"berth-{rank}") for rank in range(self.world_size)]
        self.berths = tuple(Berth(**json.loads(text)) for text in found)

    @contextmanager
    def group(self, order: int) -> Iterator[None]:
        """The default process group for one order: NCCL on GPUs, otherwise gloo."""
        try:
            dist.init_process_group(
                "nccl" if self.gpu else "gloo",
                store=dist.PrefixStore(f"group-{order}", self.store),
                rank=self.rank,
                world_size=self.world_size,
                timeout=PATIENCE,
            )
        except Exception:
            # torch 2.13 has counted the group that came to nothing, and names the next one by the
            # count: its ranks would wait for each other under two names.
            dist.distributed_c10d._world.group_count = 0
            raise
        try:
            yield
        except Exception:
            # The others see that it is gone, and leave their collectives. NCCL would wait for them
            # here while they wait for this rank: there it stays open, and the slot is closed.
            if not self.gpu:
                dist.destroy_process_group()
            raise
        dist.destroy_process_group()

    def tell(self, order: int, number: int, text: str) -> None:
        """Rank 0 tells the others what became of its report `number`."""
        self.store.set(f"report-{order}-{number}", text)

    def hear(self, order: int, number: int) -> str:
        """What rank 0 said of its report `number`; waits for it."""
        return self._get(f"report-{order}-{number}", f"rank 0 left before its report {number}")

    def heard(self, order: int, number: int) -> str | None:
        """The same, without waiting; None: it has not said anything yet."""
        said = self._has(f"report-{order}-{number}")
        return self.hear(order, number) if said else None

    def tell_port(self, order: int, port: int) -> None:
        """Rank 0 tells the others its free port."""
        self.store.set(f"port-{order}", f"{port}")

    def hear_port(self, order: int) -> int:
        """Rank 0's free port; waits for it."""
        return int(self._get(f"port-{order}", f"rank 0 left before order {order}"))

    def lose(self, order: int) -> None:
        """Tell all that this rank has failed."""
        self.store.set(f"lost-{order}", "")

    def lost(self, order: int) -> bool:
        """Whether any rank has."""
        return self._has(f"lost-{order}")

    def _get(self, key: str, otherwise: str) -> str:
        try:
            return str(self.store.get(key).decode())
        except dist.DistError as error:
            raise PeerLost(otherwise) from error

    def _has(self, key: str) -> bool:
        try:
            return bool(self.store.check([key]))
        except dist.DistError as error:
            raise PeerLost("rank 0 has left") from error


def talk_over(host: str) -> None:
    """Let gloo use the interface that has this address of ours.

    By itself it looks the host's name up, which may be unknown, or 127.0.1.1.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
