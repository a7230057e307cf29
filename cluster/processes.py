"""Processes that outlive their parent: found again and ended, never confused with others.

Linux only: this reads /proc. A pid alone does not identify a process, since the system reuses it;
together with the start time, and the boot from which that is counted, it does.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """A process, distinct from later ones with its pid."""

    pid: int
    born: int  # clock ticks since the boot
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Return the process that has the pid now; None: there is none."""
        stat = _parent_and_birth(pid)
        return None if stat is None else cls(pid, stat[1], _boot())

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal if it is alive."""
        try:
            handle = os.pidfd_open(self.pid)  # from here on, the pid is not reused
        except ProcessLookupError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)


def family(heads: Collection[Process], mark: str) -> set[Process]:
    """Return the live ones of these processes, their descendants, and all processes with the mark.

    Args:
        mark: NAME=VALUE, an environment variable that the heads were started with: it finds
            descendants whose parents have died.
    """
    boot = _boot()
    stats = {pid: stat for pid in _pids() if (stat := _parent_and_birth(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    pids = {head.pid for head in heads if head.alive}
    pids |= {pid for pid in stats if _has_mark(pid, mark)}
    unvisited = list(pids)
    while unvisited:
        new = set(children.get(unvisited.pop(), ())) - pids
        pids |= new
        unvisited += new
    return {Process(pid, stats[pid][1], boot) for pid in pids & stats.keys() - {os.getpid()}}


def end(heads: Collection[Process], mark: str, grace_s: float, patience_s: float) -> set[Process]:
    """End a family: SIGTERM to its heads, and SIGKILL to all that remain after the grace.

    Returns:
        Processes still alive `patience_s` after the first SIGKILL.
    """
    members = family(heads, mark)
    for head in heads:
        head.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while members and time.monotonic() < deadline:
        time.sleep(POLL_S)
        members = _remaining(members, heads, mark)
    deadline = time.monotonic() + patience_s
    while members and time.monotonic() < deadline:
        for member in members:
            member.send(signal.SIGKILL)
        time.sleep(POLL_S)
        members = _remaining(members, heads, mark)
    return members


def _remaining(members: set[Process], heads: Collection[Process], mark: str) -> set[Process]:
    """Return the live members and new ones: a child whose parent has died still belongs."""
    living = {member for member in members if member.alive}
    return living | family([*heads, *living], mark)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _parent_and_birth(pid: int) -> tuple[int, int] | None:
    """Return a process's parent and start time; None: it has ended, or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # a name may contain spaces and parentheses
    state, parent, born = fields[0], int(fields[1]), int(fields[19])
    return None if state in ("Z", "X") else (parent, born)


def _has_mark(pid: int, mark: str) -> bool:
    if not mark:
        return False  # an environment ends in an empty entry
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
