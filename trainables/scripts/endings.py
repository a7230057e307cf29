"""What the end of a command's program means: whose fault it was, in which words."""

import re
import signal
from typing import ClassVar, Literal

from trainables.checkpoints.room import NO_ROOM

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FROM_PEERS = re.compile(
    r"gloo/|Dist(Backend|Network)Error|NCCL error|nccl\w*Error|Connection (reset|closed) by peer"
)

# In the words of CUDA and XLA, of Python and numpy, of torch's CPU allocator, of cuBLAS, of C++.
OUT_OF_MEMORY = re.compile(
    r"(?i:out of memory)|MemoryError\b|(?i:can(no|')t allocate memory)|ALLOC_FAILED|bad_alloc"
)
TRACEBACK = "Traceback (most recent call last)"
LAST_LINES = 5  # of a program that ends without a traceback


class CommandFailed(Exception):
    """The program ended badly; the message holds its last lines."""

    kind: ClassVar[Literal["user", "oom", "storage"]] = "user"


class CommandOutOfMemory(CommandFailed):
    """It ended badly for want of memory, of a GPU or of the machine."""

    kind = "oom"


class CommandOutOfRoom(CommandFailed):
    """It ended badly, since a disk was full."""

    kind = "storage"


class CommandLost(Exception):
    """It was ended from outside, or because another rank had gone: not its own fault."""


def failure(code: int | None, tail: str, among_peers: bool) -> CommandFailed | CommandLost:
    """What a program's exit code says.

    Args:
        code: not 0; -N: by signal N; None: unknown.
        tail: its last lines.
        among_peers: whether programs of other ranks may have been the cause.
    """
    last = f"; its last lines:\n{tail}" if tail else ", and had printed nothing"
    if code is None:
        return CommandLost(f"the command's guard was killed{last}")
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    text = f"exited with {code}" if code > 0 else f"was ended by {name}"
    text = f"the command {text}{last}"
    if -code in FROM_OUTSIDE:
        return CommandLost(text)
    if OUT_OF_MEMORY.search(_end(tail)):
        return CommandOutOfMemory(text)
    if NO_ROOM.search(_end(tail)):
        return CommandOutOfRoom(text)
    fault = code > 0 and among_peers and FROM_PEERS.search(tail)
    return CommandLost(text) if fault else CommandFailed(text)


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error is, says or was raised from one that says that memory ran out."""
    if error is None:
        return False
    text = f"{type(error).__name__}: {error}"
    return bool(OUT_OF_MEMORY.search(text)) or out_of_memory(error.__cause__)


def _end(tail: str) -> str:
    """The last error of the output: a program may have met others and gone on."""
    _, found, last = tail.rpartition(TRACEBACK)
    return last if found else "\n".join(tail.splitlines()[-LAST_LINES:])
