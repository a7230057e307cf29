"""What the end of a command's program means: whose fault it was, in which words."""

import re
import signal

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FROM_PEERS = re.compile(
    r"gloo/|Dist(Backend|Network)Error|NCCL error|nccl\w*Error|Connection (reset|closed) by peer"
)

OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|out of memory|\bMemoryError\b")


class CommandFailed(Exception):
    """The program ended badly; the message holds its last lines."""


class CommandOutOfMemory(CommandFailed):
    """It ended badly for want of memory, of a GPU or of the machine."""


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
    if code > 0:
        text = f"the command exited with {code}{last}"
        if OUT_OF_MEMORY.search(tail):
            return CommandOutOfMemory(text)
        fault = among_peers and FROM_PEERS.search(tail)
        return CommandLost(text) if fault else CommandFailed(text)
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    text = f"the command was ended by {name}{last}"
    return CommandLost(text) if -code in FROM_OUTSIDE else CommandFailed(text)
