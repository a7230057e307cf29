"""This machine's own Ray, which drivers share: started in the background, found, and left.

The first driver starts it, but no driver owns it: a keeper process (ray_daemon.py) holds it while
any driver lives. Each driver holds a shared lock on a file; the keeper stops Ray when it can get
that lock exclusively. The system releases locks of dead processes, so a driver that was killed
counts as gone. Importing this module doesn't import Ray, which takes longer than to start a keeper.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from cluster.tokens import TOKEN, make_token

START_S = 180.0  # for Ray to start
KEEPERS = 3  # tried one after the other: on a busy machine Ray gives its own start up after 30 s
END_S = 30.0  # for Ray to stop
POLL_S = 0.05
MARK = "HPOSVC_RAY"  # an environment variable that marks the processes of one keeper's Ray

DRIVERS, KEEPER, ADDRESS, LOG = "drivers.lock", "keeper.lock", "address.json", "keeper.log"
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
DAEMON = "cluster.ray_daemon"  # the keeper's module


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


def running(folder: Path) -> bool:
    """Return whether the machine's own Ray is running or starting."""
    return (folder / KEEPER).exists() and is_locked(folder / KEEPER)


def own_address(folder: Path) -> str | None:
    """Return the address of the machine's own Ray; None: it is not up."""
    return read_address(folder).get("address") if running(folder) else None


def find_others(folder: Path) -> list[str]:
    """Return in words whose the other Rays of this machine are: each counts all CPUs as its own.

    Args:
        folder: of the keeper that is not meant.
    """
    keepers, raylets = {}, {}
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        if DAEMON in words[:-1]:
            keepers[process.pid] = Path(words[words.index(DAEMON) + 1])
        elif process.info["name"] == "raylet":
            raylets[process.pid] = process.info["ppid"]
    homes = [f"that of the home {place.parent}" for place in keepers.values() if place != folder]
    return homes + [f"process {pid}" for pid, parent in raylets.items() if parent not in keepers]


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


def _spawn_keeper(folder: Path) -> bool:
    """Start a keeper, which inherits the keeper's lock, unless one is alive."""
    with (folder / KEEPER).open("a+") as keeper, (folder / LOG).open("a") as log:
        if not try_lock(keeper, fcntl.LOCK_EX):
            return False
        (folder / ADDRESS).unlink(missing_ok=True)
        subprocess.Popen(
            [sys.executable, "-m", DAEMON, str(folder), str(keeper.fileno())],
            pass_fds=[keeper.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C must reach the driver only
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return True


def read_address(folder: Path) -> dict[str, str]:
    """Return what the last keeper wrote: address, pid and mark; empty: its Ray is not up."""
    with suppress(FileNotFoundError):
        return dict(json.loads((folder / ADDRESS).read_text()))
    return {}


def await_address(folder: Path) -> dict[str, str]:
    """Return the address of a keeper's Ray and the mark of its processes, once Ray is up.

    A keeper whose Ray did not start is followed by another.
    """
    deadline, keepers = time.monotonic() + START_S, 1
    while time.monotonic() < deadline:
        if not is_locked(folder / KEEPER):
            if keepers == KEEPERS:
                break
            keepers += _spawn_keeper(folder)
        elif written := read_address(folder):
            return written
        time.sleep(POLL_S)
    raise Unreachable(f"Ray did not start on this machine; see {folder / LOG}")


def await_end(folder: Path) -> None:
    """Wait for the keeper to stop Ray, unless there are other drivers."""
    deadline = time.monotonic() + END_S
    with suppress(KeyError, ProcessLookupError):
        os.kill(int(read_address(folder)["pid"]), signal.SIGTERM)
    while time.monotonic() < deadline and is_locked(folder / KEEPER) and not _has_drivers(folder):
        time.sleep(POLL_S)


def _has_drivers(folder: Path) -> bool:
    """Return whether drivers hold their lock, and not the keeper, which does while stopping Ray."""
    with (folder / DRIVERS).open("a+") as file:
        return try_lock(file, fcntl.LOCK_SH) and not try_lock(file, fcntl.LOCK_EX)
