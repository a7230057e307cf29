"""Connection to a Ray cluster: a given one, or this machine's own (own_ray.py)."""

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import ray
from ray.util.client import ray as ray_client

from cluster.own_ray import (
    KEEPER,
    LOG,
    Unreachable,
    await_address,
    await_end,
    enable_token,
    is_locked,
    start,
)
from cluster.processes import end

DIAL_S = 5.0  # for a cluster's port to answer
PROBE_S = 1.0  # between probes of the port, and the time limit of each
SILENT_S = 40.0  # until a silent head counts as gone; Ray itself ends a driver after 60
KILLED_S = 5.0  # for processes of a killed keeper to end
DIED = "this machine's own Ray has died"
GONE = 5  # the exit status of a command that can't reach what it needs

NAMESPACE = "hposvc"  # of our connections and actors
NOTHING: Mapping[str, object] = {}

log = logging.getLogger("hposvc")


@dataclass
class Connection:
    """This process's connection to a cluster."""

    address: str
    lock: IO[str] | None  # of the machine's own Ray
    mark: str = ""  # NAME=VALUE in the environment of its processes
    borrowed: bool = False  # whether the user connected this process, which `close` leaves so
    _probed_at: float = field(default_factory=time.monotonic)  # when the head was last probed
    _silent_since: float | None = None  # since when the head has not answered, monotonic
    _closed: threading.Event = field(default_factory=threading.Event)

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
            raise Unreachable(f"{DIED}; see {folder / LOG}")

    def end_if_it_hangs(self) -> None:
        """End this process if the machine's own Ray dies, and a call of Ray does not return.

        Ray ends a process that has lost its head after 60 s, without a word of what is to be done.
        """

        def watch(keeper: Path) -> None:
            with suppress(OSError):  # the home is gone
                while is_locked(keeper):
                    if self._closed.wait(PROBE_S):
                        return
                if not self._closed.wait(SILENT_S):
                    log.error("%s, and does not answer; hposvc resume goes on", DIED)
                    os._exit(GONE)

        assert self.lock is not None
        keeper = Path(self.lock.name).parent / KEEPER
        threading.Thread(target=watch, args=[keeper], name="own Ray", daemon=True).start()

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
        self._closed.set()
        if self.lock is None:
            if not self.borrowed:
                ray.shutdown()
            return
        folder = Path(self.lock.name).parent
        if self.mark and not is_locked(folder / KEEPER):
            end(self.mark, 0.0, KILLED_S)  # processes left by a killed keeper
        ray.shutdown()
        self.lock.close()
        await_end(folder)


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
        enable_token()
        _connect_driver(address, runtime_env)
        return Connection(ray.get_runtime_context().gcs_address, None)
    lock = start(folder)
    keeper = await_address(folder)
    _connect_driver(keeper["address"], runtime_env)
    connection = Connection(keeper["address"], lock, keeper["mark"])
    connection.end_if_it_hangs()
    return connection


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
        if "Failed to merge the Job's runtime env" in f"{error}":
            raise Unreachable(
                "environment.runtime_env: this process is a Ray job, whose own runtime environment "
                f"has some of {', '.join(runtime_env)} too; give each key in one of the two"
            ) from None  # the error has all variables, and some may be secret
        raise Unreachable(
            f"no Ray cluster answers at {address}: {error}; "
            "check the address, or leave it out to use this machine"
        ) from error
