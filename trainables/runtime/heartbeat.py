"""Signs of life of a rank: sent to its coordinator; without any, stacks are written to its log.

A trainable that beats is judged by its beats and reports alone, since a rank waiting for its GPU
for ever keeps a processor busy. For any other trainable, its output and the processor time of the
process and its children count too, so that a function may work for hours between two reports.
"""

import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from trainables.parallel.recorder import last_collectives

LOOKS = 10  # checks of a rank without signs of life, until it counts as hanging
LONGEST_S = 10.0  # at most, between two checks
MUCH = 2**20  # bytes to and from disks between two checks that count as a sign of life
BUSY = 0.02  # share of a processor that does; an idle process of Ray's takes 0.002 (Ray 2.60)
# At least, in seconds between two checks: where a stall is short, writing the stacks took 0.005.
LEAST_BUSY_S = 0.02
STDERR = 2  # the order's log, while there is an order


@dataclass
class LivenessSignals:
    """A rank's signs of life during an order; any thread may set them."""

    given: bool = True  # there was a sign since the last check
    beats: bool = False  # the trainable has called beat() at least once
    waits: bool = False  # the rank waits for its coordinator, which may take its time

    def beat(self) -> None:
        """Note that the trainable is at work."""
        self.given = self.beats = True


class Signs(Protocol):
    """What a heartbeat reads of LivenessSignals, or of those of several orders."""

    given: bool

    @property
    def beats(self) -> bool:
        """Whether beats and reports alone count."""
        ...

    @property
    def waits(self) -> bool:
        """Whether the rank waits for its coordinator."""
        ...


@dataclass(eq=False)
class Heartbeat:
    """Look for signs of life in this process, from a thread of its own.

    faulthandler writes the stacks from a C thread, even while the hanging code holds the GIL.

    Args:
        stall_s: seconds that a rank may go without a sign of life.
        tell: called with an order's id, now and then, while there are signs of life.
        works: whether this process runs the trainable; otherwise a child process, a program, does.
        watchers: threads that live as long as the process, whose work is no sign of life.
    """

    stall_s: float
    tell: Callable[[int], None]
    works: bool
    watchers: Sequence[threading.Thread] = ()
    _order: tuple[int, Signs] | None = None  # the current order
    _log: int = STDERR  # the descriptor of its log
    _seen_at: float = field(default_factory=time.monotonic)  # the last sign of life
    _size: int = 0  # of the log
    _bytes: int = 0  # to and from disks
    _worked: dict[int, float] = field(default_factory=dict)  # processor seconds, by process
    _counted_at: float = field(default_factory=time.monotonic)
    _arm_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._arm(self.stall_s)
        # A forked child lacks faulthandler's thread, and would wait for that thread when it exits.
        os.register_at_fork(
            before=self._disarm, after_in_parent=self._rearm, after_in_child=self._arm_lock.release
        )
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()

    @contextmanager
    def during(self, order: int, signals: Signs, log: int = STDERR) -> Iterator[None]:
        """Watch over an order within the context; standard error must go to the order's log.

        Args:
            log: the descriptor of the log file; standard error may be a pipe, whose size says
                nothing.
        """
        self._log, self._order = log, (order, signals)
        try:
            yield
        finally:
            self._order = None

    def _watch(self) -> None:
        while True:
            self._sleep_until_check()
            order = self._order
            if order is None or self._shows_life(order[1]):
                self._seen_at = time.monotonic()
                with self._arm_lock:
                    self._arm(self.stall_s)
                if order is not None:
                    try:
                        self.tell(order[0])
                    except OSError:  # the coordinator is gone, and this process soon will be
                        return

    def _sleep_until_check(self) -> None:
        """Sleep until the next check; write the last collectives first if the rank stalls by then.

        The coordinator waits no longer than WRITING_S for that text.
        """
        look_at = time.monotonic() + min(self.stall_s / LOOKS, LONGEST_S)
        over_at, order = self._seen_at + self.stall_s, self._order
        if order is not None and time.monotonic() <= over_at < look_at:
            time.sleep(over_at - time.monotonic())
            if self._order == order and not (order[1].given or order[1].waits):
                # Keep watching if another torch has another record, or the disk is full.
                with suppress(Exception):
                    if collectives := last_collectives():
                        title = "The last collectives of this rank, by torch's flight recorder:"
                        os.write(STDERR, f"{title}\n{collectives}".encode())
        time.sleep(max(0.0, look_at - time.monotonic()))

    def _shows_life(self, signals: Signs) -> bool:
        try:
            return self._alive(signals)
        except (OSError, psutil.Error):
            return True  # a process that cannot be inspected does not count as hanging

    def _alive(self, signals: Signs) -> bool:
        """Return whether there was a sign of life since the last check."""
        given, signals.given = signals.given or signals.waits, False
        before, self._size = self._size, os.fstat(self._log).st_size
        # Output later than `stall_s` after the last sign is faulthandler's stacks.
        printed = self._size != before and time.monotonic() - self._seen_at < self.stall_s
        moved = self._has_moved_data()
        if signals.beats and self.works:  # a program does not beat, whatever waited for its server
            return given or moved
        return given or printed or moved or self._is_busy()

    def _has_moved_data(self) -> bool:
        """Return whether this process read or wrote much, as it does for a large checkpoint."""
        process = psutil.Process()
        if not hasattr(process, "io_counters"):  # macOS does not count them
            return False
        io = process.io_counters()
        before, self._bytes = self._bytes, io.read_bytes + io.write_bytes
        return self._bytes - before > MUCH

    def _is_busy(self) -> bool:
        """Return whether the trainable or program used processor time since the last call."""
        before, since = self._worked, self._counted_at
        own_s = self._trainable_cpu_s() if self.works else 0.0
        self._worked, self._counted_at = {0: own_s, **_child_cpu_seconds()}, time.monotonic()
        taken = sum(
            max(0.0, seconds - before.get(process, 0.0))
            for process, seconds in self._worked.items()
        )
        return taken > max(LEAST_BUSY_S, BUSY * (self._counted_at - since))

    def _trainable_cpu_s(self) -> float:
        """Return the processor seconds of this process, less those of the threads that watch it."""
        watching_s = sum(
            time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for thread in self.watchers
            if thread.ident is not None
        )
        return time.process_time() - time.thread_time() - watching_s

    def _arm(self, left_s: float) -> None:
        """Let faulthandler write the stacks after so many seconds, in place of an earlier time."""
        faulthandler.dump_traceback_later(left_s, file=STDERR)

    def _disarm(self) -> None:
        self._arm_lock.acquire()
        faulthandler.cancel_dump_traceback_later()

    def _rearm(self) -> None:
        left_s = self._seen_at + self.stall_s - time.monotonic()
        if left_s > 0:
            self._arm(left_s)
        self._arm_lock.release()


def _child_cpu_seconds() -> dict[int, float]:
    """Return the processor seconds used so far by each child process, by process id."""
    seconds = {}
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
        seconds[child.pid] = times.user + times.system
    return seconds
