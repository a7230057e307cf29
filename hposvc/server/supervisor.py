"""The supervisor: a thread that finds a driver for each sweep that is to have one.

It asks the journal which sweeps these are and whose leases are held, so it also knows the drivers
that an earlier server has started. Two drivers of one sweep can't work, whoever starts them: the
lease decides.
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hposvc import api
from hposvc.errors import StoreError
from hposvc.journal import supervision
from hposvc.journal.journal import SweepRow
from hposvc.journal.supervision import Supervised

LOOK_S = 0.5  # between two looks at the journal, and at the drivers
SHORTEST_S, LONGEST_S = 1.0, 60.0  # pauses before a driver is started again

log = logging.getLogger("hposvc")


class Drivers(Protocol):
    """Starts drivers, and knows which of them have ended."""

    def start(self, row: SweepRow) -> None:
        """Start a driver of the sweep.

        Raises:
            Exception: it can't be started now.
        """

    def running(self) -> Collection[str]:
        """Return the sweeps whose drivers, started here, have not ended."""


@dataclass
class Attempt:
    """The last driver that was started of a sweep."""

    asked: str  # the request for a driver that it was started for
    seq: int  # number of the sweep's last event before
    pause_s: float  # before the next one
    ended: float | None = (
        None  # when it was seen to have ended, in monotonic seconds; None: it runs
    )


class Supervisor:
    """Keeps a driver at work on each sweep that is to have one."""

    def __init__(self, sweeps: api.Sweeps, drivers: Drivers, most: int) -> None:
        """Supervise all sweeps of a journal.

        Args:
            most: how many drivers may work at once, and as many more that only end a sweep; the
                other sweeps wait in the order in which drivers were asked for.
        """
        self._sweeps, self._drivers, self._most = sweeps, drivers, most
        self._attempts: dict[str, Attempt] = {}
        self._woken = threading.Event()
        self._ended = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Supervise from a thread while the block runs; drivers at work outlive it."""
        thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended = True
            self._woken.set()
            thread.join()

    def wake(self) -> None:
        """Look at the journal at once: a driver was asked for."""
        self._woken.set()

    def turn(self) -> None:
        """Start the drivers that are missing."""
        now = time.monotonic()
        at_work = set(self._drivers.running())
        asked = supervision.supervised(self._sweeps.journal.store)
        at_work |= {sweep.sweep for sweep in asked if sweep.driver.state == "alive"}
        names = {sweep.sweep for sweep in asked}
        self._attempts = {
            name: attempts for name, attempts in self._attempts.items() if name in names
        }
        for sweep in asked:
            if sweep.sweep in at_work or self._pauses(sweep, now):
                continue
            # An end takes a moment and no slots, so it need not wait for sweeps that train.
            most = 2 * self._most if sweep.ends else self._most
            if len(at_work) < most:
                at_work.add(sweep.sweep)
                self._start(sweep)

    def _pauses(self, sweep: Supervised, now: float) -> bool:
        """Return whether to wait before the next driver of a sweep that has none at work."""
        attempt = self._attempts.get(sweep.sweep)
        if attempt is None or attempt.asked != sweep.asked:
            return False
        if attempt.ended is None:
            attempt.ended = now
            if self._sweeps.journal.advanced(sweep.sweep, attempt.seq):
                attempt.pause_s = SHORTEST_S
            log.warning(
                "%s: its driver has ended, and the sweep has not; another one in %g s",
                sweep.sweep,
                attempt.pause_s,
            )
        return now < attempt.ended + attempt.pause_s

    def _start(self, sweep: Supervised) -> None:
        earlier = self._attempts.get(sweep.sweep)
        again = earlier is not None and earlier.asked == sweep.asked
        pause_s = min(2 * earlier.pause_s, LONGEST_S) if earlier and again else SHORTEST_S
        seq = self._sweeps.journal.last(sweep.sweep)
        self._attempts[sweep.sweep] = Attempt(sweep.asked, seq, pause_s)
        row = self._sweeps.journal.find(sweep.sweep)
        if row is None:  # deleted a moment ago
            return
        try:
            self._drivers.start(row)
        except Exception as error:  # tried again, whatever it is
            log.warning("%s: no driver could be started", sweep.sweep, exc_info=error)

    def _run(self) -> None:
        while not self._ended:
            self._woken.clear()
            try:
                self.turn()
            except StoreError as error:
                log.warning("no drivers are started: %s", error)
            except Exception:  # one turn that broke must not be the last
                log.exception("the supervisor broke, which is a bug; it goes on")
            self._woken.wait(LOOK_S)
