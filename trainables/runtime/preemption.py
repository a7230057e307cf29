"""SIGTERM to a rank: during an order it counts as a notice, and the order ends in good time.

A rank without an order exits at once. So do processes forked by the user's code: they inherit the
handler, and multiprocessing ends its processes by SIGTERM.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from trainables.stop_signals import Notice


class SigtermHandler:
    """Turn SIGTERM into a notice; create and use the handler on the main thread.

    Args:
        tell: called once, from a thread, with the id of the order that the notice interrupts.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.notice = Notice()
        self._tell = tell
        self._process = os.getpid()
        self._before = signal.getsignal(signal.SIGTERM)
        self._order: int | None = None
        self._notice_given = False
        threading.Thread(target=self._tell_order, name="notice", daemon=True).start()

    @contextmanager
    def during(self, order: int) -> Iterator[None]:
        """Take SIGTERM for a notice within the context, which is that of an order."""
        self._order = order
        self._before = signal.signal(signal.SIGTERM, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, self._before)  # the user's code may have set its own
            self._order = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process:
            # A second signal may interrupt the first one's handler, and giving a notice locks.
            repeated, self._notice_given = self._notice_given, True
            if not repeated:
                self.notice.give()
        elif callable(self._before):
            self._before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _tell_order(self) -> None:
        self.notice.wait()
        order = self._order
        if order is not None:
            with suppress(OSError):  # the coordinator is gone
                self._tell(order)
