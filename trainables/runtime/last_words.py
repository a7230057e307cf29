"""Why a rank's process died, from the log of its order.

Ray does not tell how a process of its own ended. So the process notes in its log, in lines that
begin with `SUMMARY`, that it is about to end itself (os._exit, its memory limit); of a fatal
signal, faulthandler and Ray write there. A process that leaves no such word was killed by SIGKILL,
as by the kernel when memory ran out, or ended by native code.
"""

import faulthandler
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainables.errors import SUMMARY, describe_output

STDERR = 2  # the order's log, while there is an order
EXIT = re.compile(rf"{re.escape(SUMMARY)}exit status (\d+)")
KILLED = re.compile(rf"{re.escape(SUMMARY)}(killed: it used .*)")
FULL = re.compile(rf"{re.escape(SUMMARY)}memory runs out: (it uses .*)")
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
FATAL = re.compile(rf"Fatal Python error: ({'|'.join(SIGNALS)})|\*\*\* (SIG\w+) received at time=")
# What faulthandler (Python 3.11 to 3.14) and Ray (2.60) print after a fatal signal.
OF_FAULT = re.compile(
    r"\s|$|PC: @|\[.*logging\.cc|Fatal Python error|\*\*\* SIG|(Current )?[Tt]hread |Stack |"
    r"Current thread's C stack|Extension modules|<(no|cannot|truncated|tstate)"
)
TAIL = 256 * 1024  # bytes of a log that are read; the list of modules after a fault may be long
LINES, CHARACTERS = 15, 4096  # of the last output that a message has
FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
FRAMES = 8  # lines of the stack of a fault that it has


@dataclass(frozen=True)
class Death:
    """The end of a rank's process."""

    how: str  # "exit status 1", "killed by SIGSEGV"
    status: int | None = None  # the exit status; None: a signal, or unknown
    crashed: bool = False  # by its own doing: an exit, or a fault
    out_of_memory: bool = False  # it used more than its limit
    low_memory: str = ""  # what it used of the node's memory, when hardly any was left
    output: str = ""  # its last lines
    stack: str = ""  # where it was when the fatal signal came

    def describe(self, who: str = "") -> str:
        """Return a message for people: the last lines, and then how the process ended.

        Args:
            who: the rank, if there are several.
        """
        before = "".join(f"{text}\n" for text in (self.output, self.stack) if text)
        how = "; ".join(filter(None, (self.how, describe_output(self.output))))
        return f"{before}{SUMMARY}{who}{': ' * bool(who)}{how}"


def note_exits() -> None:
    """Have this process write its last word when it ends itself, or by a fatal signal."""
    if not faulthandler.is_enabled():  # Ray enables it
        faulthandler.enable(file=STDERR, all_threads=False)
    own, leave = os.getpid(), os._exit

    def leave_noted(status: int) -> NoReturn:
        if os.getpid() == own:  # a forked child ends so as a matter of course
            note(f"exit status {status & 0xFF}: it called os._exit")
        leave(status)

    os._exit = leave_noted


def note(text: str) -> None:
    """Write a last word into the log."""
    with suppress(OSError):  # the disk is full
        os.write(STDERR, f"\n{SUMMARY}{text}\n".encode())


def read_death(logs: Sequence[Path]) -> Death | None:
    """Return how a process died, by the first of its logs that is here; None: none is."""
    for log in logs:
        with suppress(OSError), log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return death_of(file.read().decode("utf-8", "replace"))
    return None


def death_of(text: str) -> Death:
    """Return the death that the end of a log tells of."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    last = lines[-1] if lines else ""
    if match := EXIT.match(last):
        status = int(match[1])
        return Death(last.removeprefix(SUMMARY), status, crashed=True, output=_output(lines))
    if match := KILLED.match(last):
        return Death(match[1], out_of_memory=True, output=_output(lines))
    if (fault := _fault(lines)) is not None:
        start, name = fault
        stack = [line for line in lines[start:] if line.startswith("  File ")][:FRAMES]
        where = FRAME.match(stack[0]) if stack else None
        how = f"killed by {name}" + (f" in {where[3]} ({where[1]}:{where[2]})" if where else "")
        return Death(how, crashed=True, output=_output(lines[:start]), stack="\n".join(stack))
    low = [match[1] for line in lines[-LINES:] if (match := FULL.match(line))]
    how = "killed by SIGKILL, or ended by native code: its log has no exit status and no fault"
    if low:
        how = f"killed because memory ran out: {low[-1]}"
    return Death(how, low_memory=low[-1] if low else "", output=_output(lines))


def _fault(lines: Sequence[str]) -> tuple[int, str] | None:
    """Return where the report of a fatal signal begins, and the signal; None: nothing died so.

    A child of the process may have died so before: then other output follows.
    """
    start = len(lines)
    while start > 0 and OF_FAULT.match(lines[start - 1]):
        start -= 1
    for number in range(start, len(lines)):
        if match := FATAL.match(lines[number]):
            return number, match[2] or SIGNALS[match[1]]
    return None


def _output(lines: Sequence[str]) -> str:
    """Return the last lines that the trainable itself wrote."""
    own = [line for line in lines if line and not line.startswith(SUMMARY)]
    return "\n".join(own[-LINES:])[-CHARACTERS:]
