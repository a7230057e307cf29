"""Holds this machine's own Ray while any driver lives: `python -m cluster.keeper FOLDER`."""

import fcntl
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

import ray

from cluster.launch import ADDRESS, DRIVERS, KEEPER, POLL_S

TAKE_S = 0.5  # to take the lock
LINGER_S = 3.0  # after the last driver was killed, for one that resumes at once
SUBREAPER = "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper"
STORE_BYTES = 200 * 2**20  # of shared memory: trials pass messages, not data


def keep(folder: Path) -> None:
    """Start Ray, say where it is, and end it when nobody needs it."""
    # The first to open is the last to close: who gets the drivers' lock finds no keeper.
    with (folder / DRIVERS).open("a+") as drivers, (folder / KEEPER).open("a+") as mine:
        if not _take(mine.fileno()):
            return  # another keeper was faster
        (folder / ADDRESS).unlink(missing_ok=True)
        # What a rank has started ends with it, also if it left its session and its parent.
        os.environ.setdefault(SUBREAPER, "true")
        ray.init(
            address="local",
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        _publish(folder, ray.get_runtime_context().gcs_address)
        _await_last(drivers.fileno())
        (folder / ADDRESS).unlink(missing_ok=True)
        ray.shutdown()


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


def _await_last(drivers: int) -> None:
    """Return, holding the drivers' lock, when no driver has had it for a while."""
    linger_s = LINGER_S
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
        time.sleep(POLL_S)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
