"""The keeper of this machine's own Ray, for as long as any driver lives.

Run as `python -m cluster.ray_daemon FOLDER`. If one of Ray's own processes dies, Ray can't be
repaired: the keeper kills the rest of it and exits, which tells the drivers. Otherwise they would
wait for ever, or be ended by Ray after 60 s.
"""

import ctypes
import fcntl
import json
import logging
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from cluster.launch import ADDRESS, DRIVERS, KEEPER, MARK, POLL_S

TAKE_S = 0.5  # to take the lock
LINGER_S = 3.0  # after the last driver was killed, for one that resumes at once
STRAYS_S = 1.0  # between searches for stray processes: each takes 2 ms
GONE_S = 5.0  # for the last stray processes to end
PR_SET_CHILD_SUBREAPER = 36
VITAL = {"gcs_server", "raylet"}  # names of processes without which Ray does not work
VITAL_S = 0.25  # between checks of them
# For drivers to leave a dying Ray: a call to Ray that is cut off would hang for 60 s.
LEAVE_S = 3.0
STORE_BYTES = 200 * 2**20  # of shared memory: trials pass messages, not data


def keep(folder: Path) -> None:
    """Start Ray, publish its address, and stop Ray once no driver needs it."""
    # The file opened first is closed last: whoever gets the drivers' lock finds no keeper.
    with (folder / DRIVERS).open("a+") as drivers, (folder / KEEPER).open("a+") as keeper_lock:
        if not _lock_keeper(keeper_lock.fileno()):
            return  # another keeper was faster
        (folder / ADDRESS).unlink(missing_ok=True)
        _become_subreaper()
        mark = secrets.token_hex(8)
        # Or processes that change their title would overwrite their environment and the mark.
        os.environ |= {MARK: mark, "SPT_NOENV": "1"}
        ray.init(
            address="local",
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        own_children = _child_pids()
        _publish(folder, ray.get_runtime_context().gcs_address, f"{MARK}={mark}")
        if died := _await_last(drivers.fileno(), own_children, _vital_processes()):
            logging.error("%s of this machine's own Ray has died; the rest of it is ended", died)
            (folder / ADDRESS).unlink(missing_ok=True)
            fcntl.flock(keeper_lock, fcntl.LOCK_UN)  # this tells the drivers
            time.sleep(LEAVE_S)
            _end_all()
            logging.shutdown()
            os._exit(1)  # Ray's own shutdown would wait for the dead process
        (folder / ADDRESS).unlink(missing_ok=True)
        ray.shutdown()
        deadline = time.monotonic() + GONE_S
        while _end_strays(frozenset()) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _become_subreaper() -> None:
    """Become the parent of orphans of dead ranks (Linux), so that they can be ended.

    This catches processes even if they left their session, process group and parent. Ray's own
    subreaper can no longer be combined with its clean-up by process groups (2.60).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _child_pids() -> frozenset[int] | None:
    """Return the pids of this process's children; None: they cannot be listed."""
    try:
        return frozenset(child.pid for child in psutil.Process().children())
    except (psutil.Error, OSError):  # for example if /proc hides other users' processes
        return None


def _end_strays(ours: frozenset[int] | None) -> int:
    """Kill all other children with their descendants, and return how many children there were."""
    children = _child_pids()
    if ours is None or children is None:
        return 0  # strays cannot be told from our own children
    for pid in children - ours:
        with suppress(psutil.Error, OSError):
            stray = psutil.Process(pid)
            for process in (*stray.children(recursive=True), stray):
                process.kill()
        with suppress(ChildProcessError):  # already reaped
            os.waitpid(pid, os.WNOHANG)
    return len(children - ours)


def _vital_processes() -> list[psutil.Process]:
    """Return the processes of Ray that must live; empty if they cannot be listed."""
    with suppress(psutil.Error, OSError):
        return [child for child in psutil.Process().children() if child.name() in VITAL]
    return []


def _first_dead(vital: list[psutil.Process]) -> str:
    """Return the name of a vital process that has ended; empty: all are alive."""
    for process in vital:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return process.name()
        except psutil.NoSuchProcess:  # already reaped
            return "a process"
        except (psutil.Error, OSError):
            continue
    return ""


def _end_all() -> None:
    """Kill all descendants of this process, to which orphaned ones are re-parented."""
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        with suppress(psutil.Error, OSError):
            descendants = psutil.Process().children(recursive=True)
            living = [
                process for process in descendants if process.status() != psutil.STATUS_ZOMBIE
            ]
            if not living:
                return
            for process in living:
                process.kill()
        time.sleep(POLL_S)


def _lock_keeper(lock: int) -> bool:
    """Take the keeper's lock, retrying: processes checking whether it is held hold it briefly."""
    deadline = time.monotonic() + TAKE_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def _publish(folder: Path, address: str, mark: str) -> None:
    text = json.dumps({"address": address, "pid": os.getpid(), "mark": mark})
    draft = folder / f"{ADDRESS}.{os.getpid()}"
    draft.write_text(text)
    draft.rename(folder / ADDRESS)


def _await_last(drivers: int, ours: frozenset[int] | None, vital: list[psutil.Process]) -> str:
    """Return, holding the drivers' lock, once no driver has held it for a while.

    Args:
        ours: children not to be killed meanwhile.
        vital: processes whose death ends the wait.

    Returns:
        The name of a vital process that has died, without the lock; otherwise empty.
    """
    linger_s, strays_ended_at = LINGER_S, time.monotonic()
    vital_checked_at = strays_ended_at
    free_since: float | None = None

    def hurry(*_: object) -> None:
        nonlocal linger_s
        linger_s = 0.0  # the signal of the last driver

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
                return ""
            fcntl.flock(drivers, fcntl.LOCK_UN)
        if time.monotonic() - strays_ended_at >= STRAYS_S:
            _end_strays(ours)
            strays_ended_at = time.monotonic()
        if time.monotonic() - vital_checked_at >= VITAL_S:
            if died := _first_dead(vital):
                return died
            vital_checked_at = time.monotonic()
        time.sleep(POLL_S)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
