"""This machine's own Ray, which drivers share: started in the background, found, and left.

The first driver starts it, but no driver owns it: a keeper process, `python -m cluster.own_ray
FOLDER LOCK`, holds it while any driver lives. Each driver holds a shared lock on a file; the keeper
stops Ray when it can get that lock exclusively. The system releases locks of dead processes, so a
driver that was killed counts as gone. If one of Ray's own processes dies, Ray can't be repaired:
the keeper kills the rest of it and exits, which tells the drivers. Otherwise they would wait for
ever, or be ended by Ray after 60 s.

Importing this module doesn't import Ray, which takes longer than to start a keeper.
"""

import ctypes
import fcntl
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from cluster.retries import wait_until
from cluster.tokens import TOKEN, make_token

START_S = 180.0  # for Ray to start
KEEPERS = 3  # tried one after the other: on a busy machine Ray gives its own start up after 30 s
END_S = 30.0  # for Ray to stop
POLL_S = 0.05
LINGER_S = 3.0  # after the last driver was killed, for one that resumes at once
STRAYS_S = 1.0  # between searches for stray processes: each takes 2 ms
GONE_S = 5.0  # for the last processes to end
# For drivers to leave a dying Ray: a call to Ray that is cut off would hang for 60 s.
LEAVE_S = 3.0
STORE_BYTES = 200 * 2**20  # of shared memory: trials pass messages, not data
PR_SET_CHILD_SUBREAPER = 36
VITAL = {"gcs_server", "raylet"}  # Ray's names of the processes without which it does not work
MARK = "HPOSVC_RAY"  # an environment variable that marks the processes of one keeper's Ray

DRIVERS, KEEPER, ADDRESS, LOG = "drivers.lock", "keeper.lock", "address.json", "keeper.log"
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
MODULE = "cluster.own_ray"  # of the keeper


class Unreachable(Exception):
    """No Ray cluster answers."""


def start(folder: Path) -> IO[str]:
    """Start the machine's own Ray in the background, unless it runs; `connect` waits for it.

    Args:
        folder: for its locks, address and log.

    Returns:
        The driver's shared lock; keep the file open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Ray 2.60 turns tokens on for a Ray that it starts itself, and off for drivers that join by
    # address.
    if not {"RAY_AUTH_MODE", *TOKENS} & os.environ.keys():
        make_token(folder / TOKEN)
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(folder / TOKEN)
    enable_token()
    lock = (folder / DRIVERS).open("a+")
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits while a keeper is ending
    _spawn_keeper(folder)
    return lock


def own_address(folder: Path) -> str | None:
    """Return the address of the machine's own Ray; None: it is not up."""
    keeper = folder / KEEPER
    return read_address(folder).get("address") if keeper.exists() and is_locked(keeper) else None


def find_others(folder: Path) -> list[str]:
    """Return the addresses of this machine's other Rays: each counts all CPUs as its own.

    Args:
        folder: of the Ray that is not meant.
    """
    option = "--gcs-address="
    addresses = {
        word.removeprefix(option)
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "raylet"
        for word in process.info["cmdline"] or ()
        if word.startswith(option)
    }
    return sorted(addresses - {read_address(folder).get("address")})


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock on this file."""
    with path.open("a+") as file:
        return not try_lock(file, fcntl.LOCK_EX)


def try_lock(file: IO[str], kind: int) -> bool:
    """Take a lock on an open file, unless another process holds it; return whether it was taken.

    Args:
        kind: LOCK_EX, or LOCK_SH for a lock that several processes may share.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def enable_token() -> None:
    """Enable an existing token, which Ray does not do by itself when joining by address."""
    if "RAY_AUTH_MODE" not in os.environ and TOKENS & os.environ.keys():
        os.environ["RAY_AUTH_MODE"] = "token"
        if "ray" in sys.modules:  # Ray 2.60 reads the mode only on import; there is no other way
            from ray._raylet import Config  # type: ignore[attr-defined]  # compiled

            Config.initialize("")


def _spawn_keeper(folder: Path) -> None:
    """Start a keeper, which inherits the keeper's lock, unless one is alive."""
    with (folder / KEEPER).open("a+") as keeper, (folder / LOG).open("a") as log:
        if not try_lock(keeper, fcntl.LOCK_EX):
            return
        (folder / ADDRESS).unlink(missing_ok=True)
        subprocess.Popen(
            [sys.executable, "-m", MODULE, str(folder), str(keeper.fileno())],
            pass_fds=[keeper.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C must reach the driver only
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


def read_address(folder: Path) -> dict[str, str]:
    """Return what the last keeper wrote: address, pid and mark; empty: its Ray is not up."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return dict(json.loads((folder / ADDRESS).read_text()))
    return {}


def await_address(folder: Path) -> dict[str, str]:
    """Return the address of a keeper's Ray and the mark of its processes, once Ray is up.

    A keeper whose Ray did not start is followed by another.
    """
    deadline = time.monotonic() + START_S
    for number in range(KEEPERS):
        if number:
            _spawn_keeper(folder)
        while is_locked(folder / KEEPER) and time.monotonic() < deadline:
            if written := read_address(folder):
                return written
            time.sleep(POLL_S)
    raise Unreachable(f"Ray did not start on this machine; see {folder / LOG}")


def await_end(folder: Path) -> None:
    """Wait for the keeper to stop Ray, unless there are other drivers."""
    with suppress(KeyError, ProcessLookupError):
        os.kill(int(read_address(folder)["pid"]), signal.SIGTERM)
    wait_until(lambda: not is_locked(folder / KEEPER) or _has_drivers(folder), END_S, POLL_S)


def _has_drivers(folder: Path) -> bool:
    """Return whether drivers hold their lock, and not the keeper, which does while stopping Ray."""
    with (folder / DRIVERS).open("a+") as file:
        return try_lock(file, fcntl.LOCK_SH) and not try_lock(file, fcntl.LOCK_EX)


def _keep(folder: Path, keeper_lock: int) -> None:
    """Start Ray, publish its address, and stop Ray once no driver needs it.

    Args:
        keeper_lock: the descriptor of the keeper's lock, which the driver took for this process.
    """
    import ray

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
        wait_until(lambda: not _kill_children(frozenset()), GONE_S, POLL_S)
        if died:
            logging.shutdown()
            os._exit(1)  # Ray's own shutdown would wait for the dead process


def _leave_out_processes() -> None:
    """Let Ray start without three processes that one machine does not need; they double its time.

    One is for usage statistics (Ray 2.60 starts it even without a dashboard, and waits for it), one
    adds nodes, and one copies logs to drivers. Ray has no public option for that.
    """
    from ray._private.node import Node

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
    _keep(Path(sys.argv[1]), int(sys.argv[2]))
