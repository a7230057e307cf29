"""Signs of life of a rank: its leader hears of them, and where there are none, its log gets stacks.

A trainable that beats is judged by its beats and reports alone: a rank that waits for its GPU for
ever keeps a processor busy. Of any other, what it prints and the processor time that it and its
child processes take count too, so that a function may work for hours between two reports.
"""

import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

LOOKS = 10  # while a rank shows nothing, until it is said to hang
LONGEST_S = 10.0  # between two of them
MUCH = 2**20  # bytes to and from disks between two looks
BUSY = 0.02  # of a processor; an idle process of Ray's takes 0.002 (Ray 2.60)
STDERR = 2  # the order's log, while there is an order


@dataclass
class Signs:
    """What a rank shows of itself during an order; any thread may set it."""

    given: bool = True  # one since the last look
    beats: bool = False  # the trainable has given one by itself, ever
    waits: bool = False  # for its leader, which has the time that it takes

    def beat(self) -> None:
        """The trainable is at work."""
        self.given = self.beats = True


@dataclass(eq=False)
class Pulse:
    """Looks for signs of life in this process, from a thread of its own.

    The stacks are written by a thread of C, also while what hangs keeps Python's lock.

    Args:
        stall_s: how long a rank may show nothing.
        tell: called with an order's id, now and then while it gives signs.
        works: this process runs the trainable; otherwise a program does, a child of it.
    """

    stall_s: float
    tell: Callable[[int], None]
    works: bool
    _order: tuple[int, Signs] | None = None  # the one that is out
    _seen_at: float = field(default_factory=time.monotonic)  # the last sign
    _size: int = 0  # of the log
    _bytes: int = 0  # to and from disks
    _worked: dict[int, float] = field(default_factory=dict)  # processor seconds, by process
    _counted_at: float = field(default_factory=time.monotonic)
    _arming: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._arm(self.stall_s)
        # A child that is forked lacks the thread that writes, and would wait for it at its end.
        os.register_at_fork(
            before=self._disarm, after_in_parent=self._rearm, after_in_child=self._arming.release
        )
        threading.Thread(target=self._watch, name="pulse", daemon=True).start()

    @contextmanager
    def during(self, order: int, signs: Signs) -> Iterator[None]:
        """An order is out, and standard error is its log."""
        self._order = (order, signs)
        try:
            yield
        finally:
            self._order = None

    def _watch(self) -> None:
        while True:
            time.sleep(min(self.stall_s / LOOKS, LONGEST_S))
            order = self._order
            if order is None or self._shows_life(order[1]):
                self._seen_at = time.monotonic()
                with self._arming:
                    self._arm(self.stall_s)
                if order is not None:
                    try:
                        self.tell(order[0])
                    except OSError:  # the leader is gone, and this process soon will be
                        return

    def _shows_life(self, signs: Signs) -> bool:
        try:
            return self._alive(signs)
        except (OSError, psutil.Error):
            return True  # what cannot be looked at is no hang

    def _alive(self, signs: Signs) -> bool:
        """Whether there was a sign since the last look."""
        given, signs.given = signs.given or signs.waits, False
        printed = self._printed()
        moved = self._moved()
        if signs.beats:
            return given or moved
        return given or printed or moved or self._busy()

    def _printed(self) -> bool:
        before, self._size = self._size, os.fstat(STDERR).st_size
        # What is written once the time is over are the stacks.
        return self._size != before and time.monotonic() - self._seen_at < self.stall_s

    def _moved(self) -> bool:
        """Whether this process read or wrote much, as for a checkpoint: that takes its time."""
        io = psutil.Process().io_counters()
        before, self._bytes = self._bytes, io.read_bytes + io.write_bytes
        return self._bytes - before > MUCH

    def _busy(self) -> bool:
        """Whether what works took processor time since this was last asked."""
        before, since = self._worked, self._counted_at
        own_s = time.process_time() - time.thread_time() if self.works else 0.0
        self._worked, self._counted_at = {0: own_s, **_of_children()}, time.monotonic()
        taken = sum(
            max(0.0, seconds - before.get(process, 0.0))
            for process, seconds in self._worked.items()
        )
        return taken > BUSY * (self._counted_at - since)

    def _arm(self, left_s: float) -> None:
        """Have the stacks written after so long, in place of any other time."""
        faulthandler.dump_traceback_later(left_s, file=STDERR)

    def _disarm(self) -> None:
        self._arming.acquire()
        faulthandler.cancel_dump_traceback_later()

    def _rearm(self) -> None:
        left_s = self._seen_at + self.stall_s - time.monotonic()
        if left_s > 0:
            self._arm(left_s)
        self._arming.release()


def _of_children() -> dict[int, float]:
    """The processor seconds that each child of this process has taken so far."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
        found[child.pid] = times.user + times.system
    return found
