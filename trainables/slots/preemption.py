"""SIGTERM to a rank: while it has an order, that is a notice, and the order ends in good time.

A rank without an order ends at once, as do processes that the user's code forks: those inherit
the handler, and multiprocessing ends its own by this very signal.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from trainables.stopping import Notice

TOLD = "was told to end (SIGTERM)"


class Watch:
    """Waits for the notice; to be made and used on the main thread.

    Args:
        tell: called once with the order that is out when the notice comes, from a thread.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.notice = Notice()
        self._tell = tell
        self._process = os.getpid()
        self._before = signal.getsignal(signal.SIGTERM)
        self._order: int | None = None
        self._heeded = False
        threading.Thread(target=self._pass_on, name="notice", daemon=True).start()

    @contextmanager
    def during(self, order: int) -> Iterator[None]:
        """An order is out."""
        self._order = order
        self._before = signal.signal(signal.SIGTERM, self._heed)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, self._before)  # the user's code may have set its own
            self._order = None

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process:
            # A second signal comes in the midst of the first: what gives the notice holds a lock.
            heeded, self._heeded = self._heeded, True
            if not heeded:
                self.notice.give()
        elif callable(self._before):
            self._before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _pass_on(self) -> None:
        self.notice.wait()
        order = self._order
        if order is not None:
            with suppress(OSError):  # the leader is gone
                self._tell(order)
