"""The store where the ranks of a slot meet, and the process group of each order.

Rank 0 listens on a port chosen by the system and keeps the store open for the slot's life (a port
probed for beforehand can be taken by another process). Each order's group lives under a prefix of
the store of its own. A gloo group is made anew for each order, in some milliseconds: a group that
was kept has hung the next order. An NCCL group takes seconds to make, so it is kept where the order
ended well.
"""

import datetime
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import psutil
import torch.distributed as dist

# Warms a rank up: DDP's first use imports some 800 modules more, which takes 1.5 s.
import trainables.parallel.ddp  # noqa: F401
from trainables.listener import listen
from trainables.programs.rendezvous import RankAddress

# Rank 0 may evaluate alone for hours while the others wait; a rank's death is seen at once.
MAX_WAIT = datetime.timedelta(days=7)
# NCCL ends the process when its timeout is over. The coordinator, whose message explains more, gets
# this much time before that to say that the order hangs.
LEADER_S = 60.0

BACKLOG = 1024  # ranks connecting at once
FAILED = "failed"
TURNS_KEPT = 1000  # in the store

Backend = Literal["gloo", "nccl"]


class PeerLost(Exception):
    """Another rank left while this one waited for it."""


def timeout_of(backend: Backend, stall_s: float) -> datetime.timedelta:
    """Return how long a collective of this backend may take.

    A rank waiting for NCCL keeps a processor busy, so nothing else shows that it waits forever.
    """
    if backend == "gloo":
        return MAX_WAIT
    return min(MAX_WAIT, datetime.timedelta(seconds=stall_s + LEADER_S))


def may_keep(backend: Backend, ends: Sequence[str]) -> bool:
    """Return whether a group that has served an order may serve the next one.

    Args:
        ends: for each rank the number of collectives that it began, or FAILED if the order failed.
            Ranks with different numbers would mistake each other's collectives for their own.
    """
    return backend == "nccl" and FAILED not in ends and len(set(ends)) == 1


@dataclass
class RankStore:
    """The open TCP store of a slot's ranks."""

    host: str
    port: int
    rank: int
    world_size: int
    gpu: bool
    store: dist.TCPStore
    stall_s: float = 600.0  # without a sign of life before an order counts as hung
    keeps_group: bool = field(default=False, init=False)  # the last order's group still exists
    last_order: int = field(default=0, init=False)  # the order that it served
    turn: int = field(default=0, init=False)  # the next turn's number
    addresses: tuple[RankAddress, ...] = field(default=(), init=False)  # where each rank runs

    @classmethod
    def open(cls, host: str, world_size: int, gpu: bool, stall_s: float = 600.0) -> "RankStore":
        """Open the store on rank 0, listening on a free port at this address only."""
        # By default the store would listen at every address. It closes the file that it is given.
        with listen(host, BACKLOG) as server:
            port, listening = server.getsockname()[1], server.detach()
        store = dist.TCPStore(
            host, port, None, True, MAX_WAIT, wait_for_workers=False, master_listen_fd=listening
        )
        return cls(host, store.port, 0, world_size, gpu, store, stall_s)

    @classmethod
    def join(
        cls, host: str, port: int, rank: int, world_size: int, gpu: bool, stall_s: float = 600.0
    ) -> "RankStore":
        """Connect to the store from any other rank."""
        store = dist.TCPStore(host, port, None, False, MAX_WAIT, wait_for_workers=False)
        return cls(host, port, rank, world_size, gpu, store, stall_s)

    @property
    def backend(self) -> Backend:
        """Return NCCL on GPUs, otherwise gloo."""
        return "nccl" if self.gpu else "gloo"

    def exchange_addresses(self, own: RankAddress) -> None:
        """Publish the address of this rank, and learn those of the others."""
        self.store.set(f"address-{self.rank}", json.dumps(asdict(own)))
        addresses = [self.store.get(f"address-{rank}") for rank in range(self.world_size)]
        self.addresses = tuple(RankAddress(**json.loads(text)) for text in addresses)

    @contextmanager
    def group(self, order: int) -> Iterator[object]:
        """Provide the default process group for one order.

        Keep what this yields until the models are gone. Otherwise DDP's reducer has the last
        reference: it destroys the group while it holds the GIL, and waits for ever if a thread of
        gloo's needs the GIL just then (torch 2.13). Python's reference lets the GIL go.
        """
        self._begin_order(order)
        try:
            yield dist.group.WORLD
        except BaseException:
            self._fail_order(order)
            raise
        self._end_order(order)

    def drop(self) -> None:
        """Abort a kept group: the next order makes one itself, or needs none."""
        if self.keeps_group:
            self.keeps_group = False
            # No collective is running. Destroying could wait for a rank that has aborted its group.
            dist.distributed_c10d._abort_process_group()

    def _begin_order(self, order: int) -> None:
        if self.keeps_group:
            # All ranks read the same entries, so they decide alike.
            ends = [
                self._get(
                    f"end-{self.last_order}-{rank}",
                    f"rank {rank} left after order {self.last_order}",
                )
                for rank in range(self.world_size)
            ]
            if may_keep(self.backend, ends):
                return
            self.drop()
        try:
            dist.init_process_group(
                self.backend,
                store=dist.PrefixStore(f"group-{order}", self.store),
                rank=self.rank,
                world_size=self.world_size,
                timeout=timeout_of(self.backend, self.stall_s),
            )
        except Exception:
            # torch 2.13 has counted the failed group, and names the next one by the count: the
            # ranks would wait for each other under two names.
            dist.distributed_c10d._world.group_count = 0
            raise

    def _fail_order(self, order: int) -> None:
        self.keeps_group = False
        if self.backend == "gloo":
            # The others see that this rank has gone, and leave their collectives.
            if dist.is_initialized():  # the user's code may have destroyed it
                dist.destroy_process_group()
            return
        # Destroying an NCCL group waits for the others, while they wait for this rank. If all fail,
        # as with a configuration that fits on none of them, the processes stay usable; ranks that
        # wait for a failed rank are ended by the coordinator.
        self.store.set(f"end-{order}-{self.rank}", FAILED)
        if dist.is_initialized():
            dist.distributed_c10d._abort_process_group()

    def _end_order(self, order: int) -> None:
        world = dist.group.WORLD
        if world is None:  # the user's code has destroyed the group
            self._fail_order(order)
            return
        collectives = f"{world._get_sequence_number_for_group()}"  # type: ignore[attr-defined]
        if may_keep(self.backend, [collectives]):
            for group in list(dist.distributed_c10d._world.pg_map):
                if group is not world:  # a group of a mesh, or for writing shards
                    dist.destroy_process_group(group)
            self.keeps_group, self.last_order = True, order
            self.store.set(f"end-{order}-{self.rank}", collectives)
        else:
            dist.destroy_process_group()

    def publish_report(self, order: int, number: int, text: str) -> None:
        """Publish what became of rank 0's report `number`."""
        self.store.set(f"report-{order}-{number}", text)

    def wait_for_report(self, order: int, number: int) -> str:
        """Wait for what became of rank 0's report `number`, and return it."""
        return self._get(f"report-{order}-{number}", f"rank 0 left before its report {number}")

    def poll_report(self, order: int, number: int) -> str | None:
        """Return what became of rank 0's report `number`; None if that is not published yet."""
        published = self._has(f"report-{order}-{number}")
        return self.wait_for_report(order, number) if published else None

    def publish_port(self, order: int, port: int) -> None:
        """Publish the free port that rank 0 has found."""
        self.store.set(f"port-{order}", f"{port}")

    def wait_for_port(self, order: int) -> int:
        """Wait for rank 0's free port, and return it."""
        return int(self._get(f"port-{order}", f"rank 0 left before order {order}"))

    def publish_turn(self, order: int) -> None:
        """Publish the order that has the next turn on every rank."""
        self.store.set(f"turn-{self.turn}", f"{order}")
        if self.turn >= TURNS_KEPT:  # no rank is so far behind
            self.store.delete_key(f"turn-{self.turn - TURNS_KEPT}")
        self.turn += 1

    def turns(self) -> Iterator[int]:
        """Yield the orders that have their turns, as rank 0 publishes them, until it is gone."""
        # Whoever waits keeps others from a store.
        own = replace(self, store=self.store.clone())  # type: ignore[attr-defined]
        with suppress(PeerLost):
            while True:
                yield int(own._get(f"turn-{own.turn}", "rank 0 left"))
                own.turn += 1

    def publish_failure(self, order: int) -> None:
        """Publish that this rank has failed."""
        self.store.set(f"lost-{order}", "")

    def has_failed_rank(self, order: int) -> bool:
        """Return whether any rank has failed."""
        return self._has(f"lost-{order}")

    def once(self, order: int, name: str, work: Callable[[], str]) -> str:
        """Return what `work` returns on the first rank that asks; see Link."""
        key = f"once-{order}-{name}"
        if self.store.add(f"{key}-asked", 1) > 1:
            done = self._get(key, f"a rank left while others waited for its {name}")
            return done or work()
        done = ""
        try:
            done = work()
            return done
        finally:
            self.store.set(key, done)

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


def set_gloo_interface(host: str) -> None:
    """Let gloo use the network interface that has this address of this machine.

    By default gloo looks the host's name up, which may be unknown, or 127.0.1.1.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
