"""Holds this machine's own Ray while any driver lives: `python -m cluster.keeper FOLDER`."""

import ctypes
import fcntl
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from cluster.launch import ADDRESS, DRIVERS, KEEPER, POLL_S

TAKE_S = 0.5  # to take the lock
LINGER_S = 3.0  # after the last driver was killed, for one that resumes at once
STRAYS_S = 1.0  # between looks for them: one takes 2 ms
GONE_S = 5.0  # for the last of them to be gone
PR_SET_CHILD_SUBREAPER = 36
STORE_BYTES = 200 * 2**20  # of shared memory: trials pass messages, not data


def keep(folder: Path) -> None:
    """Start Ray, say where it is, and end it when nobody needs it."""
    # The first to open is the last to close: who gets the drivers' lock finds no keeper.
    with (folder / DRIVERS).open("a+") as drivers, (folder / KEEPER).open("a+") as mine:
        if not _take(mine.fileno()):
            return  # another keeper was faster
        (folder / ADDRESS).unlink(missing_ok=True)
        _adopt()
        ray.init(
            address="local",
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        ours = _children()
        _publish(folder, ray.get_runtime_context().gcs_address)
        _await_last(drivers.fileno(), ours)
        (folder / ADDRESS).unlink(missing_ok=True)
        ray.shutdown()
        deadline = time.monotonic() + GONE_S
        while _end_strays(frozenset()) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _adopt() -> None:
    """Be the parent of what ranks that are gone had started (Linux), which is to end with them.

    That they left their session, their process group and their parent does not help them. Ray can
    do as much no longer beside its own clean-up by process groups (2.60).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> frozenset[int] | None:
    """None: they cannot be seen."""
    try:
        return frozenset(child.pid for child in psutil.Process().children())
    except (psutil.Error, OSError):  # where /proc hides the processes of others, say
        return None


def _end_strays(ours: frozenset[int] | None) -> int:
    """Kill all children but these, with their own; returns how many there were."""
    there = _children()
    if ours is None or there is None:
        return 0  # who cannot tell them apart leaves them alone
    for pid in there - ours:
        with suppress(psutil.Error, OSError):
            stray = psutil.Process(pid)
            for each in (*stray.children(recursive=True), stray):
                each.kill()
        with suppress(ChildProcessError):  # it has been buried
            os.waitpid(pid, os.WNOHANG)
    return len(there - ours)


def _take(lock: int) -> bool:
    """Take the keeper's lock; one who only looks whether it is held has it for a moment."""
    deadline = time.monotonic() + TAKE_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def _publish(folder: Path, address: str) -> None:
    text = json.dumps({"address": address, "pid": os.getpid()})
    draft = folder / f"{ADDRESS}.{os.getpid()}"
    draft.write_text(text)
    draft.rename(folder / ADDRESS)


def _await_last(drivers: int, ours: frozenset[int] | None) -> None:
    """Return, holding the drivers' lock, when no driver has had it for a while.

    Args:
        ours: children that are to live meanwhile.
    """
    linger_s, looked = LINGER_S, time.monotonic()
    free_since: float | None = None

    def hurry(*_: object) -> None:
        nonlocal linger_s
        linger_s = 0.0  # the last driver says that it was the last

    signal.signal(signal.SIGTERM, hurry)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            fcntl.flock(drivers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free_since = None
        else:
            free_since = free_since or time.monotonic()
            if time.monotonic() - free_since >= linger_s:
                return
            fcntl.flock(drivers, fcntl.LOCK_UN)
        if time.monotonic() - looked >= STRAYS_S:
            _end_strays(ours)
            looked = time.monotonic()
        time.sleep(POLL_S)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
