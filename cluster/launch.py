"""Reach a Ray cluster: one that is given, or this machine's own, which drivers share.

The machine's own Ray is started by whoever comes first and belongs to nobody: a keeper process
(keeper.py) holds it while any driver lives. Each driver holds a shared lock on a file; the keeper
ends Ray when it can take that lock for itself. The system takes locks from the dead, so a driver
that was killed counts as gone.
"""

import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import ray
from ray._raylet import Config  # type: ignore[attr-defined]  # compiled

from cluster.tokens import TOKEN, make_token

START_S = 120.0  # for Ray to come up
END_S = 30.0  # for Ray to go down
DIAL_S = 5.0  # for a cluster's port to answer
POLL_S = 0.05

DRIVERS, KEEPER, ADDRESS, LOG = "drivers.lock", "keeper.lock", "address.json", "keeper.log"
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
NOTHING: Mapping[str, object] = {}


class Unreachable(Exception):
    """No Ray cluster answers."""


@dataclass
class Connection:
    """This process's connection to a cluster."""

    address: str
    lock: IO[str] | None  # of the machine's own Ray

    def check(self) -> None:
        """See that the machine's own Ray is there; calls to one that is not wait for 60 s.

        Raises:
            Unreachable: its keeper is gone, and Ray with it.
        """
        if self.lock is None:
            return
        folder = Path(self.lock.name).parent
        if not held(folder / KEEPER):
            raise Unreachable(f"this machine's own Ray has died; see {folder / LOG}")

    def close(self) -> None:
        """Disconnect; the machine's own Ray has ended on return if this was its last driver."""
        ray.shutdown()
        if self.lock is not None:
            folder = Path(self.lock.name).parent
            self.lock.close()
            _await_end(folder)


def start(folder: Path) -> IO[str]:
    """Begin to start the machine's own Ray, unless it runs; `connect` waits for it.

    Args:
        folder: where it leaves word of itself.

    Returns:
        The driver's share in it; keep it open.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _share_token(folder / TOKEN)
    lock = (folder / DRIVERS).open("a+")
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits while a keeper is ending
    if not held(folder / KEEPER):
        _spawn(folder)
    return lock


def connect(
    folder: Path, address: str | None = None, runtime_env: Mapping[str, object] = NOTHING
) -> Connection:
    """Join the cluster at `address`, or the machine's own, started if there is none.

    Raises:
        Unreachable: nothing answers there.
    """
    if address is not None:
        _heed_token()
        _join(address, runtime_env)
        return Connection(address, None)
    lock = start(folder)
    found = _await_address(folder)
    _join(found, runtime_env)
    return Connection(found, lock)


def held(path: Path) -> bool:
    """Whether some process has the lock on this file."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _share_token(file: Path) -> None:
    """Let this process and the keeper use one token, unless the user has arranged for another.

    Ray 2.60 turns tokens on in a Ray that it starts itself, and off in one who joins by address.
    """
    if {"RAY_AUTH_MODE", *TOKENS} & os.environ.keys():
        _heed_token()
        return
    make_token(file)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)
    _heed_token()


def _heed_token() -> None:
    """Use the token that there is: one who joins by address would not, unless told to."""
    if "RAY_AUTH_MODE" not in os.environ and TOKENS & os.environ.keys():
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")  # Ray 2.60 reads the mode when it is imported; there is no other way


def _join(address: str, runtime_env: Mapping[str, object]) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=DIAL_S).close()
        ray.init(
            address=address,
            namespace="hposvc",
            runtime_env=dict(runtime_env) or None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise Unreachable(
            f"no Ray cluster answers at {address}: {error}; "
            "check the address, or leave it out to use this machine"
        ) from error


def _spawn(folder: Path) -> None:
    with (folder / LOG).open("a") as log:
        subprocess.Popen(
            [sys.executable, "-m", "cluster.keeper", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the driver
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


def _await_address(folder: Path) -> str:
    deadline = time.monotonic() + START_S
    spawned = time.monotonic()
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if held(folder / KEEPER):
                return str(json.loads((folder / ADDRESS).read_text())["address"])
        if time.monotonic() - spawned > 10.0 and not held(folder / KEEPER):
            break
        time.sleep(POLL_S)
    raise Unreachable(f"Ray did not start on this machine; see {folder / LOG}")


def _await_end(folder: Path) -> None:
    """Wait for the keeper to end Ray, unless there are other drivers."""
    deadline = time.monotonic() + END_S
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(json.loads((folder / ADDRESS).read_text())["pid"], signal.SIGTERM)
    while time.monotonic() < deadline and held(folder / KEEPER):
        # The keeper itself holds the drivers' lock while it ends; another driver shares it.
        with (folder / DRIVERS).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                shared = False
            else:
                shared = not _alone(file)
        if shared:
            return
        time.sleep(POLL_S)


def _alone(file: IO[str]) -> bool:
    """Whether nobody else shares the lock that is held on this open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
