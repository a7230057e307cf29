"""Processes that outlive who started them: found again, and ended, without taking others for them.

Linux only: this reads /proc. A pid alone names nobody, since the system gives it to the next one;
with the moment of birth, and the boot that it is counted from, it does.
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
    """A process, and no later one with its pid."""

    pid: int
    born: int  # clock ticks since the boot
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has the pid now, unless it has ended."""
        found = _stat(pid)
        return None if found is None else cls(pid, found[1], _boot())

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send it a signal if it is still there."""
        try:
            handle = os.pidfd_open(self.pid)  # from here on, the pid is not given to another
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
    """These processes if they live, all that descend from them, and all that carry the mark.

    Args:
        mark: NAME=VALUE, an environment variable that the heads were started with: by it those are
            found whose parents have died.
    """
    boot = _boot()
    found = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in found.items():
        children.setdefault(parent, []).append(pid)
    pids = {head.pid for head in heads if head.alive}
    pids |= {pid for pid in found if _carries(pid, mark)}
    waiting = list(pids)
    while waiting:
        fresh = set(children.get(waiting.pop(), ())) - pids
        pids |= fresh
        waiting += fresh
    return {Process(pid, found[pid][1], boot) for pid in pids & found.keys() - {os.getpid()}}


def end(heads: Collection[Process], mark: str, grace_s: float, patience_s: float) -> set[Process]:
    """End a family: SIGTERM to its heads, and SIGKILL to all that is left after the grace.

    Returns:
        What has not gone within the patience, after SIGKILL.
    """
    members = family(heads, mark)
    for head in heads:
        head.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while members and time.monotonic() < deadline:
        time.sleep(POLL_S)
        members = _left(members, heads, mark)
    deadline = time.monotonic() + patience_s
    while members and time.monotonic() < deadline:
        for member in members:
            member.send(signal.SIGKILL)
        time.sleep(POLL_S)
        members = _left(members, heads, mark)
    return members


def _left(members: set[Process], heads: Collection[Process], mark: str) -> set[Process]:
    """Who of them lives, and who has joined them: a child whose parent died is still one of us."""
    living = {member for member in members if member.alive}
    return living | family([*heads, *living], mark)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and moment of birth; None if it is gone, or waits only to be buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # a name may hold blanks and brackets
    state, parent, born = fields[0], int(fields[1]), int(fields[19])
    return None if state in ("Z", "X") else (parent, born)


def _carries(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
