"""Which driver is at work on a sweep: one at a time, and a dead one gives way.

A driver on this host that no longer lives is replaced at once. One on another host is when its
lease is older than `EXPIRY_S`, or from the future, and has then been watched for `WATCH_S` without
a change: clocks of two hosts differ, and jump. The journal's own key fences out a driver that was
replaced and does not know it.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from hposvc.store import LEASES, Store, StoreError

EXPIRY_S = 60.0
RENEW_S = 10.0
WATCH_S = 2.5 * RENEW_S
LOOK_S = 0.5  # between two looks at a lease that is watched

DriverState = Literal["alive", "dead", "none"]


log = logging.getLogger("hposvc")


class Busy(Exception):
    """Another driver is at work on the sweep."""


@dataclass
class Lease:
    """This process's right to drive a sweep; renew it now and then, release it at the end."""

    store: Store
    sweep: str
    driver: str = field(default_factory=lambda: uuid.uuid4().hex)
    renewed: float = 0.0  # monotonic seconds
    held: bool = False

    def acquire(self) -> None:
        """Take the sweep.

        Raises:
            Busy: a living driver has it.
        """
        mine = {
            "sweep": self.sweep,
            "driver": self.driver,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": began(os.getpid()),
        }
        self._watch()
        try:
            with self.store.writing() as connection:
                row = connection.execute(_of(self.sweep)).one_or_none()
                if row is not None:
                    if _lives(row):
                        raise self._busy(f"process {row.pid} on {row.host}")
                    # Only the one that is dead: another driver may have replaced it by now.
                    dead = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == row.driver)
                    connection.execute(delete(LEASES).where(dead))
                connection.execute(insert(LEASES).values(**mine, renewed=time.time()))
        except IntegrityError as error:
            raise self._busy("it came a moment before") from error
        self.renewed, self.held = time.monotonic(), True

    def _watch(self) -> None:
        """See that a driver of another host whose lease seems to have expired is not at work."""
        first = self._look()
        if first is None or first.host == socket.gethostname() or _lives(first):
            return
        deadline = time.monotonic() + WATCH_S
        while time.monotonic() < deadline:
            time.sleep(LOOK_S)
            row = self._look()
            if row is None or row.driver != first.driver:
                return
            if row.renewed != first.renewed:
                raise self._busy(f"process {row.pid} on {row.host}, whose clock differs")

    def _look(self) -> Any:
        with self.store.reading() as connection:
            return connection.execute(_of(self.sweep)).one_or_none()

    def renew(self) -> None:
        """Say that this driver lives, if it is time to.

        Raises:
            Busy: another driver has taken the sweep over.
        """
        if time.monotonic() - self.renewed < RENEW_S:
            return
        with self.store.writing() as connection:
            mine = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == self.driver)
            found = connection.execute(update(LEASES).where(mine).values(renewed=time.time()))
        if self.held and found.rowcount == 0:
            raise self._busy("it took over while this one did not answer")
        self.renewed = time.monotonic()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew it from a thread, while this one is busy with what may take long.

        Raises:
            Busy: at the end, if it was lost meanwhile.
        """
        done, lost = threading.Event(), list[Busy]()

        def renew() -> None:
            try:
                while not done.wait(RENEW_S):
                    self._try_to_renew()
            except Busy as error:
                lost.append(error)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if lost:
            raise lost[0]

    def _try_to_renew(self) -> None:
        """Renew it; while the store is out of reach that waits, until the lease has run out.

        Raises:
            Busy: it has run out, or another driver has taken the sweep over.
        """
        try:
            self.renew()
        except StoreError as error:
            since_s = time.monotonic() - self.renewed
            if since_s > EXPIRY_S:
                raise Busy(
                    f"{self.sweep}: its lease has run out, so another driver may have it: {error}; "
                    f"when the journal answers, `hposvc resume {self.sweep}` goes on"
                ) from error
            log.warning("%s: its lease was not renewed for %.0f s: %s", self.sweep, since_s, error)

    def release(self) -> None:
        """Let another driver take the sweep."""
        with self.store.writing() as connection:
            mine = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == self.driver)
            connection.execute(delete(LEASES).where(mine))

    def _busy(self, which: str) -> Busy:
        return Busy(
            f"{self.sweep}: a driver is at work on it ({which}); "
            f"watch it with `hposvc status {self.sweep}`, end it with `hposvc stop {self.sweep}`"
        )


def driver_state(store: Store, sweep: str) -> DriverState:
    """Whether a driver is at work: `dead` if it went without a word, `none` if it let go."""
    with store.reading() as connection:
        row = connection.execute(_of(sweep)).one_or_none()
    if row is None:
        return "none"
    return "alive" if _lives(row) else "dead"


def began(pid: int) -> float:
    """When a process began, in seconds of a clock that nobody sets; tells a reused pid.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the boot
    except FileNotFoundError:
        return float(psutil.Process(pid).create_time())  # also where there is no /proc


def _of(sweep: str) -> Select[Any]:
    return select(LEASES).where(LEASES.c.sweep == sweep)


def _lives(row: Any) -> bool:
    if row.host != socket.gethostname():
        return bool(abs(time.time() - row.renewed) < EXPIRY_S)
    try:
        zombie = psutil.Process(row.pid).status() == psutil.STATUS_ZOMBIE
        return not zombie and abs(began(row.pid) - row.started) < 2.0
    except psutil.NoSuchProcess:
        return False
