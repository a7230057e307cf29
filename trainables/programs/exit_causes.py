"""Causes for the end of a command's program: its own fault, or that of memory, disk or peers."""

import re
import signal
import sys
from pathlib import Path
from typing import ClassVar, Literal

from trainables.errors import (
    DISK_FULL_TEXT,
    OUT_OF_MEMORY,
    SUMMARY,
    TRACEBACK,
    causes,
    describe_output,
    tells_storage_fault,
    text_of,
)
from trainables.report_hints import IN_SCRIPT, ray_train_hint

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FROM_PEERS = re.compile(
    r"gloo/|Dist(Backend|Network)Error|NCCL error|nccl\w*Error|Connection (reset|closed) by peer"
)

# Parts of the message of torch.OutOfMemoryError on a GPU (2.13).
SIZE = r" (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)"
UNITS = ("bytes", "KiB", "MiB", "GiB")
WANTED, TOTAL = "Tried to allocate", "has a total capacity of"
FREE, HELD = "of which", "memory, this process has"
USABLE = 0.9  # part of a GPU share for torch; see USABLE_SHARE of environment.py
NO_TORCHRUN = re.compile(
    r"KeyError: '(LOCAL_)?(RANK|WORLD_SIZE)'|environment variable \w+ expected, but not set"
)
AS_TORCHRUN = (
    "torchrun sets it: write command: [torchrun, ...] and launch: node, or resources: {workers: 2}"
)
NO_MODULE = re.compile(r"^(?:ModuleNotFoundError|\S*python\S*): (No module named .+)", re.MULTILINE)
OTHER_PYTHON = "install it there, or give another Python's path in the command"
NAMES = [name.name for name in signal.Signals]
COMMAND = "the command"
LAST_LINES = 5  # of a program that ends without a traceback


class CommandFailed(Exception):
    """The program failed; the message holds the last lines of its output."""

    kind: ClassVar[Literal["user", "oom", "storage"]] = "user"
    sweep_wide = False  # every trial would fail alike: the pattern matches nothing


class CommandOutOfMemory(CommandFailed):
    """The program failed because the memory of a GPU or of the machine ran out."""

    kind = "oom"


class CommandDiskFull(CommandFailed):
    """The program failed because a disk was full."""

    kind = "storage"


class CommandLost(Exception):
    """The program was ended from outside, by a fault of storage, or as another rank had gone."""


def failure(
    code: int | None, tail: str, among_peers: bool, program: str, folder: Path, what: str = COMMAND
) -> CommandFailed | CommandLost:
    """Return the error for a program's exit code.

    Args:
        code: not 0; -N if signal N ended it; None if unknown.
        tail: the last lines of its output.
        among_peers: whether programs of other ranks may have been the cause.
        program: the path or the name of what was started.
        folder: of the checkpoints, whose file system may have been the cause.
        what: the program, for people.
    """
    text = _describe_end(code, tail, what)
    if code is None:
        return CommandLost(text)
    if -code in FROM_OUTSIDE:
        return CommandLost(text)
    if OUT_OF_MEMORY.search(_last_error(tail)):
        return CommandOutOfMemory(text)
    if tells_storage_fault(_last_error(tail), folder):
        return CommandLost(text)
    if DISK_FULL_TEXT.search(_last_error(tail)):
        return CommandDiskFull(text)
    if missing := NO_TORCHRUN.search(_last_error(tail)):
        return CommandFailed(f"{text.rstrip()}\n{SUMMARY}{missing[0]}; {AS_TORCHRUN}")
    if missing := NO_MODULE.search(_last_error(tail)):
        python = program if Path(program).name.startswith("python") else sys.executable
        where = f"{missing[1]} in {python}, the program's Python"
        return CommandFailed(f"{text.rstrip()}\n{SUMMARY}{where}; {OTHER_PYTHON}")
    if hint := ray_train_hint(_last_error(tail), IN_SCRIPT):
        return CommandFailed(f"{text.rstrip()}\n{SUMMARY}{hint}")
    peers_fault = code > 0 and among_peers and FROM_PEERS.search(tail)
    return CommandLost(text) if peers_fault else CommandFailed(text)


def _describe_end(code: int | None, tail: str, what: str) -> str:
    """Return the last output of a program, and then how it ended.

    A traceback says more than an exit status of 1, so it comes last then.
    """
    if code is None:
        how = f"{what} lost its guard, which was killed"
    elif code < 0:
        how = f"{what} was killed by {_signal_name(-code)}"
    else:
        how = f"{what} ended with exit status {code}"
        if code > 128 and (name := _signal_name(code - 128)) in NAMES:
            how += f" (as a shell does after {name})"
    if code == 1 and TRACEBACK in tail:
        return f"{how}; its last lines:\n{tail}"
    if not tail.strip():
        return f"{SUMMARY}{how}, and had printed nothing"
    return "; ".join(filter(None, (f"{tail}\n{SUMMARY}{how}", describe_output(tail, code or 1))))


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def taken_by_others(error: BaseException | None, share: float) -> bool:
    """Return whether other processes filled a GPU while this process stayed within its share.

    Args:
        error: torch's message has the GPU's total and free memory, and the memory that this
            process holds and asked for.
        share: this process's share of the GPU's memory.
    """
    for cause in causes(error):
        text = text_of(cause)
        matches = [re.search(pattern + SIZE, text) for pattern in (WANTED, TOTAL, FREE, HELD)]
        if all(matches):
            requested, total, free, held = (
                float(match[1]) * float(1024 ** UNITS.index(match[2])) for match in matches if match
            )
            # If enough memory was free, this process ran into the limit that it set itself.
            return free < requested and requested + held <= share * total * USABLE
    return False


def _last_error(tail: str) -> str:
    """Return the last error in the output: the program may have survived earlier ones."""
    _, separator, last = tail.rpartition(TRACEBACK)
    return last if separator else "\n".join(tail.splitlines()[-LAST_LINES:])
