"""Leases: one driver at a time works on a sweep, and a dead driver is replaced.

A dead driver on this machine is replaced at once. A driver elsewhere is replaced if its lease is
older than `EXPIRY_S`, or from the future, and does not change while it is watched for `WATCH_S`:
the clocks of two hosts differ, and may jump. Containers may share a host name, so process ids are
compared only if host name, boot and process table are the same. A driver that was replaced without
knowing it is refused by the journal's key.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Connection, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from cluster.retries import wait_until
from hposvc.errors import Busy, StoreError
from hposvc.events import DriverState
from hposvc.journal.database import LEASES, Store

EXPIRY_S = 60.0
RENEW_S = 10.0
LATE_S = 2 * RENEW_S  # since the last renewal: then renew before anything else is done
WATCH_S = 2.5 * RENEW_S
OF = ":"  # between a verb and the id of the lease that it holds
LOOK_S = 0.5  # between two looks at a watched lease


log = logging.getLogger("hposvc")


@dataclass
class Lease:
    """The right of this process to drive a sweep; renewed regularly, released at the end."""

    store: Store
    sweep: str
    work: str = ""  # the verb that holds it for a moment and drives nothing; empty: a driver
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)
    renewed: float = 0.0  # monotonic seconds
    held: bool = False
    _lost: Busy | None = None  # set by the renewing thread if another driver took the lease

    def __post_init__(self) -> None:
        if self.work:
            self.driver = f"{self.work}{OF}{self.driver}"

    def acquire(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Take the lease.

        Args:
            say: called with the reason of a wait, if there is one.

        Raises:
            Busy: a living driver has the lease.
            DamagedJournal: the journal takes nothing more.
        """
        self.store.check()
        mine = {
            "sweep": self.sweep,
            "driver": self.driver,
            "host": socket.gethostname(),
            "machine": machine_id(),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
        }
        self._watch_expired(say)
        try:
            with self.store.writing() as connection:
                row = connection.execute(_select_lease(self.sweep)).one_or_none()
                # Ours already if an earlier try was carried out without an answer.
                ours = row is not None and row.driver == self.driver
                if row is not None and not ours:
                    if _lives(row):
                        where = f"process {row.pid} on {row.host}"
                        raise busy(self.sweep, where, holder_of(row).work)
                    # Only the dead driver's row: another driver may have replaced it by now.
                    dead = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == row.driver)
                    connection.execute(delete(LEASES).where(dead))
                if not ours:
                    connection.execute(insert(LEASES).values(**mine, renewed=time.time()))
        except IntegrityError as error:
            raise busy(self.sweep, "it came a moment before") from error
        self.renewed, self.held = time.monotonic(), True

    def _watch_expired(self, say: Callable[[str], None]) -> None:
        """Check that a driver on another host with an expired lease is really not at work."""
        first = self._read_lease()
        if first is None or is_local(first.host, first.machine) or _lives(first):
            return
        say(
            f"watching for {WATCH_S:g} s whether the driver before, process {first.pid} on "
            f"{first.host}, still works"
        )

        def is_released() -> bool:
            row = self._read_lease()
            if row is None or row.driver != first.driver:
                return True
            if row.renewed != first.renewed:
                raise busy(self.sweep, f"process {row.pid} on {row.host}, whose clock differs")
            return False

        wait_until(is_released, WATCH_S, LOOK_S)

    def _read_lease(self) -> Any:
        with self.store.reading() as connection:
            return connection.execute(_select_lease(self.sweep)).one_or_none()

    def renew(self) -> None:
        """Renew the lease if it is time to.

        Raises:
            Busy: another driver has taken the sweep over.
        """
        if time.monotonic() - self.renewed < RENEW_S:
            return
        with self.store.writing() as connection:
            mine = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == self.driver)
            result = connection.execute(update(LEASES).where(mine).values(renewed=time.time()))
        if self.held and result.rowcount == 0:
            # Taken over, or the journal is a copy of before the lease: then it may be free.
            self.acquire()
        self.renewed = time.monotonic()

    def check(self) -> None:
        """Check that this driver still has the lease, before doing what only its holder may do.

        Raises:
            Busy: another driver has taken the sweep over.
        """
        if self._lost is not None:
            raise self._lost
        if self.held and time.monotonic() - self.renewed > LATE_S:
            self.renew()  # the store was away, or this process was frozen

    @contextmanager
    def renewed_in_background(self) -> Iterator[None]:
        """Renew the lease from a thread while the block runs.

        Raises:
            Busy: at the end of the block, if the lease was lost meanwhile.
        """
        done = threading.Event()
        thread = threading.Thread(
            target=self._keep_renewing, args=(done,), name="lease", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if self._lost is not None:
            raise self._lost

    def _keep_renewing(self, done: threading.Event) -> None:
        """Renew the lease until `done` is set; a store that is away is asked again.

        A lease that expires meanwhile matters only if another driver takes it, which the next
        successful renewal detects.
        """
        while not done.wait(RENEW_S):
            try:
                self.renew()
            except Busy as error:
                self._lost = error
                return
            except StoreError as error:
                since_s, message = time.monotonic() - self.renewed, "%s: its lease was not renewed"
                log.warning(f"{message} for %.0f s: %s", self.sweep, since_s, error)

    def release(self) -> None:
        """Release the lease; if the store is away, the lease is free once it expires."""
        try:
            with self.store.writing() as connection:
                self.release_in(connection)
        except StoreError as error:
            log.warning("%s: its lease was not let go of: %s", self.sweep, error)

    def release_in(self, connection: Connection) -> None:
        """Release the lease as a part of this transaction."""
        mine = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == self.driver)
        connection.execute(delete(LEASES).where(mine))


def busy(sweep: str, which: str, work: str = "") -> Busy:
    """Return the error that a driver is at work on the sweep; `which` says what is known of it.

    Args:
        work: the verb that has the lease in place of a driver.
    """
    if work:
        return Busy(f"{sweep}: `{work}` is at work on it ({which}), for a moment", "try again")
    fix = f"watch it with `hposvc status {sweep}`, end it with `hposvc stop {sweep}`"
    return Busy(f"{sweep}: a driver is at work on it ({which})", fix)


@dataclass(frozen=True)
class Holder:
    """The driver that has a sweep's lease, if there is one."""

    state: DriverState
    place: str = ""  # host:pid; empty: no driver has the lease
    work: str = ""  # the verb that has it in place of a driver


def find_holder(connection: Connection, sweep: str) -> Holder:
    """Return the holder of the lease; in a writing transaction it can't change until the end."""
    writing = connection.get_execution_options().get("writing", False)
    query = _select_lease(sweep).with_for_update() if writing else _select_lease(sweep)
    row = connection.execute(query).one_or_none()
    return Holder("none") if row is None else holder_of(row)


def holder_of(row: Any) -> Holder:
    """Return the holder of a lease, from its row."""
    work, _, _ = row.driver.rpartition(OF)
    return Holder("alive" if _lives(row) else "dead", f"{row.host}:{row.pid}", work)


def holder(store: Store, sweep: str) -> Holder:
    """Return the holder of the lease at this moment."""
    with store.reading() as connection:
        return find_holder(connection, sweep)


def driver_state(store: Store, sweep: str) -> DriverState:
    """Return whether a driver is `alive`, `dead` without a release, or `none` has the lease."""
    return holder(store, sweep).state


def process_start(pid: int) -> float:
    """Return the start of a process, in seconds of a clock that nobody sets; detects a reused pid.

    Raises:
        psutil.NoSuchProcess: there is no such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the boot
    except FileNotFoundError:
        return float(psutil.Process(pid).create_time())  # also on systems without /proc


def machine_id(proc: Path = Path("/proc")) -> str:
    """Return an id of this process's boot and process table; empty: /proc can't say."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def is_local(host: str, machine: str) -> bool:
    """Return whether a process id from that host and `machine` names a process visible here."""
    return host == socket.gethostname() and machine == machine_id()


def _select_lease(sweep: str) -> Select[Any]:
    return select(LEASES).where(LEASES.c.sweep == sweep)


def _lives(row: Any) -> bool:
    if not is_local(row.host, row.machine):
        return bool(abs(time.time() - row.renewed) < EXPIRY_S)
    try:
        zombie = psutil.Process(row.pid).status() == psutil.STATUS_ZOMBIE
        return not zombie and abs(process_start(row.pid) - row.started) < 2.0
    except psutil.NoSuchProcess:
        return False
