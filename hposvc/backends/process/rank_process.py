"""A rank without Ray: a process that reads its slot from stdin and then carries out orders.

Stdin stays open: its end means that the owner of the slot is gone, and a byte is a notice to end
soon. `srun` copies its own stdin to all ranks, so this works across nodes too.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import BinaryIO

from hposvc.backends.process.rank_commands import ANY
from hposvc.errors import OutOfReach
from trainables.contract import Call, SlotConfig
from trainables.runtime.ranks import Rank

NOTICE = b"!"  # on stdin: this process will end soon
DEVICES = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class SlotOfRank:
    """The slot of a rank, pickled into the rank's stdin."""

    config: SlotConfig
    call: Call
    gpus: float  # of each rank
    cpus: float


@dataclass(frozen=True)
class RankPosition:
    """The number of a rank in its group, and its place among the ranks of its node."""

    rank: int
    local_rank: int
    local_size: int
    owner_host: str | None = None  # where this node reaches the owner; None: on this node

    @classmethod
    def from_slurm(cls, variables: Mapping[str, str]) -> "RankPosition":
        """Return the position that srun gave this process."""
        node, tasks = int(variables["SLURM_NODEID"]), variables["SLURM_STEP_TASKS_PER_NODE"]
        return cls(
            int(variables["SLURM_PROCID"]),
            int(variables["SLURM_LOCALID"]),
            tasks_per_node(tasks)[node],
            variables["SLURM_SRUN_COMM_HOST"],
        )


def position_of(numbers: Sequence[str], variables: Mapping[str, str]) -> RankPosition:
    """Return the position of a rank here, by its number and theirs; without, that given by srun."""
    if not numbers:
        return RankPosition.from_slurm(variables)
    rank, ranks = map(int, numbers)
    return RankPosition(rank, rank, ranks)


def tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node, from Slurm's short form `2(x3),1`."""
    numbers = []
    for part in text.split(","):
        tasks, _, times = part.partition("(x")
        numbers += [int(tasks)] * int(times.removesuffix(")") or 1)
    return numbers


def serve_rank(position: RankPosition) -> None:
    """Carry out orders until the owner of the slot is gone."""
    stream = _take_stdin()
    slot: SlotOfRank = pickle.load(stream)
    if os.getpgrp() != os.getpid():
        with suppress(PermissionError):  # it leads a session
            os.setpgid(0, 0)  # so that its children can be killed with it
    threading.Thread(target=_heed, args=(stream,), name="stdin", daemon=True).start()
    os.environ.setdefault(THREADS, f"{max(1, int(slot.cpus))}")
    if slot.gpus > 0:
        visible = os.environ.get(DEVICES)
        if visible is None:  # nothing says which of this machine's GPUs may be used
            devices = [f"{number}" for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
        else:
            devices = [name for name in visible.split(",") if name]
        os.environ[DEVICES] = ",".join(own_devices(devices, slot.gpus, position))
    host, port = slot.call.address
    if host == ANY and position.owner_host is not None:
        host = position.owner_host
    Rank(position.rank, slot.config).serve(slot.call._replace(address=(host, port)))


def own_devices(devices: Sequence[str], gpus: float, position: RankPosition) -> Sequence[str]:
    """Return a rank's share of the devices that this node's ranks see.

    A rank that sees just what it needs keeps that: Slurm has bound it (`--gpus-per-task`).

    Args:
        gpus: of each rank; several ranks share a device if it is below 1.

    Raises:
        OutOfReach: there are too few.
    """
    needed = ceil(gpus * position.local_size) if gpus < 1 else int(gpus) * position.local_size
    own = ceil(gpus)
    if len(devices) < needed and len(devices) != own:
        raise OutOfReach(
            f"resources.gpus_per_worker is {gpus:g} for {position.local_size} ranks "
            f"on this node, and {len(devices)} devices are visible",
            fix=f"ask Slurm for {needed} (--gpus-per-node), or name as many in {DEVICES}",
        )
    if len(devices) == own:
        return devices
    first = int(position.local_rank * gpus)
    return devices[first : first + own]


def _take_stdin() -> BinaryIO:
    """Return stdin, which the trainable and its children no longer see."""
    stream = os.fdopen(os.dup(sys.stdin.fileno()), "rb")  # not inherited by children
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    return stream


def _heed(stream: BinaryIO) -> None:
    """Pass the owner's notice on; once it is gone, kill this process with its children."""
    while stream.read(1) == NOTICE:
        os.kill(os.getpid(), signal.SIGTERM)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    serve_rank(position_of(sys.argv[1:], os.environ))
