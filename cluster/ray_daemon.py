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
from typing import IO, Any

import psutil
import ray
from ray._private.node import Node

from cluster.own_ray import ADDRESS, DRIVERS, MARK, POLL_S, try_lock

LINGER_S = 3.0  # after the last driver was killed, for one that resumes at once
STRAYS_S = 1.0  # between searches for stray processes: each takes 2 ms
GONE_S = 5.0  # for the last processes to end
PR_SET_CHILD_SUBREAPER = 36
VITAL = {"gcs_server", "raylet"}  # Ray's names of the processes without which it does not work
# For drivers to leave a dying Ray: a call to Ray that is cut off would hang for 60 s.
LEAVE_S = 3.0
STORE_BYTES = 200 * 2**20  # of shared memory: trials pass messages, not data


def keep(folder: Path, keeper_lock: int) -> None:
    """Start Ray, publish its address, and stop Ray once no driver needs it.

    Args:
        keeper_lock: the descriptor of the keeper's lock, which the driver took for this process.
    """
    os.set_inheritable(keeper_lock, False)
    # The file opened first is closed last: whoever gets the drivers' lock finds no keeper.
    with (folder / DRIVERS).open("a+") as drivers, os.fdopen(keeper_lock, "a") as keeper:
        if sys.platform == "linux":
            # The parent of orphans of dead ranks, which it can end even if they left their session
            # and process group. Ray's own subreaper can't be combined with its clean-up by process
            # groups any more (2.60).
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        mark = secrets.token_hex(8)
        # Or processes that change their title would overwrite their environment and the mark.
        os.environ |= {MARK: mark, "SPT_NOENV": "1"}
        _leave_out_processes()
        ray.init(
            address="local",
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        address = ray.get_runtime_context().gcs_address
        draft = folder / f"{ADDRESS}.{os.getpid()}"
        draft.write_text(
            json.dumps({"address": address, "pid": os.getpid(), "mark": f"{MARK}={mark}"})
        )
        draft.rename(folder / ADDRESS)  # complete or not at all
        died = _await_last(drivers, ray._private.worker.global_worker.node)
        (folder / ADDRESS).unlink(missing_ok=True)
        if died:
            logging.error("%s of this machine's own Ray has died; the rest of it is ended", died)
            keeper.close()  # this tells the drivers
            time.sleep(LEAVE_S)
        else:
            ray.shutdown()
        deadline = time.monotonic() + GONE_S
        while _kill_children(frozenset()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if died:
            logging.shutdown()
            os._exit(1)  # Ray's own shutdown would wait for the dead process


def _leave_out_processes() -> None:
    """Let Ray start without three processes that one machine does not need; they double its time.

    One is for usage statistics (Ray 2.60 starts it even without a dashboard, and waits for it), one
    adds nodes, and one copies logs to drivers. Ray has no public option for that.
    """
    for name in ("start_api_server", "start_monitor", "start_log_monitor"):
        setattr(Node, name, lambda *_, **__: None)


def _await_last(drivers: IO[str], node: Any) -> str:
    """Return, holding the drivers' lock, once no driver has held it for a while.

    Args:
        node: Ray's record of the processes that it started.

    Returns:
        The name of a vital process that has died, without the lock; otherwise empty.
    """
    own = {info.process.pid for infos in node.all_processes.values() for info in infos}
    linger_s, strays_ended_at = LINGER_S, time.monotonic()
    free_since: float | None = None

    def hurry(*_: object) -> None:
        nonlocal linger_s
        linger_s = 0.0  # the signal of the last driver

    signal.signal(signal.SIGTERM, hurry)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        if died := VITAL & {name for name, _ in node.dead_processes()}:
            return " and ".join(sorted(died))
        if not try_lock(drivers, fcntl.LOCK_EX):
            free_since = None
        else:
            free_since = free_since or time.monotonic()
            if time.monotonic() - free_since >= linger_s:
                return ""
            fcntl.flock(drivers, fcntl.LOCK_UN)
        if time.monotonic() - strays_ended_at >= STRAYS_S:
            _kill_children(frozenset(own))
            strays_ended_at = time.monotonic()
        time.sleep(POLL_S)


def _kill_children(besides: frozenset[int]) -> int:
    """Kill this process's other children with their descendants; return how many there were."""
    killed = 0
    with suppress(psutil.Error, OSError):  # for example if /proc hides other users' processes
        for child in psutil.Process().children():
            if child.pid in besides:
                continue
            killed += 1
            for process in (*child.children(recursive=True), child):
                process.kill()
            with suppress(ChildProcessError):  # already reaped
                os.waitpid(child.pid, os.WNOHANG)
    return killed


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
