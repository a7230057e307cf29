"""Which driver is at work on a sweep: one at a time, and a dead one gives way.

A driver on this host that no longer lives is replaced at once; one on another host when it has
not renewed its lease for `EXPIRY_S`. The journal's own key fences out a driver that was replaced
and does not know it.
"""

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import psutil
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from hposvc.store import LEASES, Store

EXPIRY_S = 60.0
RENEW_S = 10.0

DriverState = Literal["alive", "dead", "none"]


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
        process = psutil.Process()
        mine = {
            "sweep": self.sweep,
            "driver": self.driver,
            "host": socket.gethostname(),
            "pid": process.pid,
            "started": process.create_time(),
            "renewed": time.time(),
        }
        try:
            with self.store.writing() as connection:
                row = connection.execute(
                    select(LEASES).where(LEASES.c.sweep == self.sweep)
                ).one_or_none()
                if row is not None:
                    if _lives(row):
                        raise self._busy(f"process {row.pid} on {row.host}")
                    # Only the one that is dead: another driver may have replaced it by now.
                    dead = (LEASES.c.sweep == self.sweep) & (LEASES.c.driver == row.driver)
                    connection.execute(delete(LEASES).where(dead))
                connection.execute(insert(LEASES).values(mine))
        except IntegrityError as error:
            raise self._busy("it came a moment before") from error
        self.renewed, self.held = time.monotonic(), True

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
        """Renew it from a thread, while this one is busy with what may take long."""
        done = threading.Event()

        def renew() -> None:
            with suppress(Busy):  # the next renewal says so where it matters
                while not done.wait(RENEW_S):
                    self.renew()

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

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
        row = connection.execute(select(LEASES).where(LEASES.c.sweep == sweep)).one_or_none()
    if row is None:
        return "none"
    return "alive" if _lives(row) else "dead"


def _lives(row: Any) -> bool:
    if row.host != socket.gethostname():
        return bool(time.time() - row.renewed < EXPIRY_S)
    try:
        process = psutil.Process(row.pid)
        # A reused pid was started at another time; a zombie waits for its parent only.
        same = abs(process.create_time() - row.started) < 2.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
