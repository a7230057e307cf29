"""Connection to a Ray cluster: a given one, or this machine's own, which drivers share.

The first driver starts the machine's own Ray, but no driver owns it: a keeper process
(ray_daemon.py) holds it while any driver lives. Each driver holds a shared lock on a file; the
keeper stops Ray when it can get that lock exclusively. The system releases locks of dead processes,
so a driver that was killed counts as gone.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import ray
from ray._raylet import Config  # type: ignore[attr-defined]  # compiled
from ray.util.client import ray as ray_client

from cluster.processes import end
from cluster.tokens import TOKEN, make_token

START_S = 180.0  # for Ray to start
KEEPERS = 3  # tried one after the other: on a busy machine Ray gives its own start up after 30 s
END_S = 30.0  # for Ray to stop
DIAL_S = 5.0  # for a cluster's port to answer
PROBE_S = 1.0  # between probes of the port, and the time limit of each
SILENT_S = 40.0  # until a silent head counts as gone; Ray itself ends a driver after 60
POLL_S = 0.05
MARK = "HPOSVC_RAY"  # an environment variable that marks the processes of one keeper's Ray
KILLED_S = 5.0  # for processes of a killed keeper to end

DRIVERS, KEEPER, ADDRESS, LOG = "drivers.lock", "keeper.lock", "address.json", "keeper.log"
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
DAEMON = "cluster.ray_daemon"  # the keeper's module
NAMESPACE = "hposvc"  # of our connections and actors
NOTHING: Mapping[str, object] = {}

log = logging.getLogger("hposvc")


class Unreachable(Exception):
    """No Ray cluster answers."""


@dataclass
class Connection:
    """This process's connection to a cluster."""

    address: str
    lock: IO[str] | None  # of the machine's own Ray
    mark: str = ""  # NAME=VALUE in the environment of its processes
    borrowed: bool = False  # whether the user connected this process, which `close` leaves so
    _probed_at: float = field(default_factory=time.monotonic)  # when the head was last probed
    _silent_since: float | None = None  # since when the head has not answered, monotonic

    @property
    def answers(self) -> bool:
        """Whether Ray may be called: if the head is gone, a call hangs until Ray ends this process.

        Ray does so 60 s after losing the head.
        """
        return self._silent_since is None

    def check(self) -> None:
        """Check that Ray is alive.

        Raises:
            Unreachable: the keeper of the machine's own Ray, or the head of another, is gone.
        """
        if self.lock is None:
            self._probe()
            return
        folder = Path(self.lock.name).parent
        if not is_locked(folder / KEEPER):
            raise Unreachable(f"this machine's own Ray has died; see {folder / LOG}")

    def _probe(self) -> None:
        """Check, at most once per PROBE_S, that the head of a given cluster accepts connections."""
        now = time.monotonic()
        if now - self._probed_at < PROBE_S:
            return
        self._probed_at = now
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=PROBE_S).close()
        except OSError as error:
            if self._silent_since is None:
                self._silent_since = now
                log.warning(
                    "the head of the cluster at %s does not answer: %s", self.address, error
                )
            if now - self._silent_since >= SILENT_S:
                raise Unreachable(
                    f"the head of the cluster at {self.address} does not answer since "
                    f"{now - self._silent_since:.0f} s: {error}"
                ) from error
        else:
            if self._silent_since is not None:
                log.warning("the head of the cluster at %s answers again", self.address)
            self._silent_since = None

    def close(self) -> None:
        """Disconnect; on return the machine's own Ray has stopped if this was its last driver."""
        if self.lock is None:
            if not self.borrowed:
                ray.shutdown()
            return
        folder = Path(self.lock.name).parent
        if self.mark and not is_locked(folder / KEEPER):
            end(self.mark, 0.0, KILLED_S)  # processes left by a killed keeper
        ray.shutdown()
        self.lock.close()
        _await_end(folder)


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
    _enable_token()
    lock = (folder / DRIVERS).open("a+")
    fcntl.flock(lock, fcntl.LOCK_SH)  # waits while a keeper is ending
    _spawn_keeper(folder)
    return lock


def connect(
    folder: Path, address: str | None = None, runtime_env: Mapping[str, object] = NOTHING
) -> Connection:
    """Connect to the cluster at `address`, or to the machine's own, starting it if needed.

    A process that the user has connected to Ray stays so, and works on that cluster.

    Args:
        runtime_env: of all processes of a new connection; a borrowed one keeps its own.

    Raises:
        Unreachable: no cluster answers, or this process is connected to another one.
    """
    if ray.is_initialized():
        return _borrow(address)
    if address is not None:
        _enable_token()
        _connect_driver(address, runtime_env)
        return Connection(ray.get_runtime_context().gcs_address, None)
    lock = start(folder)
    keeper = _await_address(folder)
    _connect_driver(keeper["address"], runtime_env)
    return Connection(keeper["address"], lock, keeper["mark"])


def _borrow(address: str | None) -> Connection:
    """Return the connection that this process has; `address` must be that of its cluster."""
    if ray_client.is_connected():
        raise Unreachable(
            "this process is connected to Ray by Ray Client (ray://), which can't carry a sweep; "
            'connect with ray.init(address="HOST:PORT"), or call ray.shutdown() before'
        )
    context = ray.get_runtime_context()
    if context.namespace == NAMESPACE:
        raise Unreachable(
            "another sweep of this process is connected to Ray; run one after the other, "
            "or each in a process of its own"
        )
    present = context.gcs_address
    if address not in (None, "auto") and _resolve(address) != _resolve(present):
        raise Unreachable(
            f"this process is connected to Ray at {present}, and the sweep is to run at {address}; "
            "leave the address out, or call ray.shutdown() before"
        )
    return Connection(present, None, borrowed=True)


def _resolve(address: str) -> tuple[str, str]:
    """Return the numeric address and the port of a cluster's head, as Ray itself writes them."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return (ray.util.get_node_ip_address() if host.startswith("127.") else host), port


def running(folder: Path) -> bool:
    """Return whether the machine's own Ray is running or starting."""
    return (folder / KEEPER).exists() and is_locked(folder / KEEPER)


def own_address(folder: Path) -> str | None:
    """Return the address of the machine's own Ray; None: it is not up."""
    return _read_address(folder).get("address") if running(folder) else None


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


def _enable_token() -> None:
    """Enable an existing token, which Ray does not do by itself when joining by address."""
    if "RAY_AUTH_MODE" not in os.environ and TOKENS & os.environ.keys():
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")  # Ray 2.60 reads the mode only on import; there is no other way


def _connect_driver(address: str, runtime_env: Mapping[str, object]) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal():  # Ray itself would retry for minutes
            socket.create_connection((host, int(port)), timeout=DIAL_S).close()
        ray.init(
            address=address,
            namespace=NAMESPACE,
            runtime_env=dict(runtime_env) or None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise Unreachable(
            f"no Ray cluster answers at {address}: {error}; "
            "check the address, or leave it out to use this machine"
        ) from error


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


def _read_address(folder: Path) -> dict[str, str]:
    """Return what the last keeper wrote: address, pid and mark; empty: its Ray is not up."""
    with suppress(FileNotFoundError):
        return dict(json.loads((folder / ADDRESS).read_text()))
    return {}


def _await_address(folder: Path) -> dict[str, str]:
    """Return the address of a keeper's Ray and the mark of its processes, once Ray is up.

    A keeper whose Ray did not start is followed by another.
    """
    deadline, keepers = time.monotonic() + START_S, 1
    while time.monotonic() < deadline:
        if not is_locked(folder / KEEPER):
            if keepers == KEEPERS:
                break
            keepers += _spawn_keeper(folder)
        elif written := _read_address(folder):
            return written
        time.sleep(POLL_S)
    raise Unreachable(f"Ray did not start on this machine; see {folder / LOG}")


def _await_end(folder: Path) -> None:
    """Wait for the keeper to stop Ray, unless there are other drivers."""
    deadline = time.monotonic() + END_S
    with suppress(KeyError, ProcessLookupError):
        os.kill(int(_read_address(folder)["pid"]), signal.SIGTERM)
    while time.monotonic() < deadline and is_locked(folder / KEEPER) and not _has_drivers(folder):
        time.sleep(POLL_S)


def _has_drivers(folder: Path) -> bool:
    """Return whether drivers hold their lock, and not the keeper, which does while stopping Ray."""
    with (folder / DRIVERS).open("a+") as file:
        return try_lock(file, fcntl.LOCK_SH) and not try_lock(file, fcntl.LOCK_EX)
