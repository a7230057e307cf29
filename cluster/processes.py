"""Processes that outlive their parent: found by a variable of their environment, and ended."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

POLL_S = 0.05


def family(mark: str, known: Iterable[psutil.Process] = ()) -> list[psutil.Process]:
    """Return the live processes with a mark, live known ones, and the descendants of both.

    Each has its name and command line in `info`.

    Args:
        mark: NAME=VALUE, an environment variable with which the first of them were started: it
            finds descendants whose parents have died.
    """
    name, _, value = mark.partition("=")
    processes = {
        process.pid: process
        for process in psutil.process_iter(["name", "cmdline", "ppid", "status", "environ"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
    }
    members = {
        pid
        for pid, process in processes.items()
        if (process.info["environ"] or {}).get(name) == value
    }
    members |= {process.pid for process in known if process.is_running()} & processes.keys()
    while new := {p.pid for p in processes.values() if p.info["ppid"] in members} - members:
        members |= new
    return [processes[pid] for pid in members]


def end(mark: str, grace_s: float, patience_s: float) -> list[psutil.Process]:
    """End a family: SIGTERM to the topmost processes, and SIGKILL to all left after the grace.

    Returns:
        Processes still alive `patience_s` after the first SIGKILL.
    """
    members = family(mark)
    pids = {member.pid for member in members}
    for member in members:
        if member.info["ppid"] not in pids:
            _send(member, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while members and time.monotonic() < deadline:
        time.sleep(POLL_S)
        members = family(mark, members)
    deadline = time.monotonic() + patience_s
    while members and time.monotonic() < deadline:
        for member in members:
            _send(member, signal.SIGKILL)
        time.sleep(POLL_S)
        members = family(mark, members)
    return members


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):  # it has ended, and its pid may be another's
        process.send_signal(number)
