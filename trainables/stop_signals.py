"""Signals that end an order before its last step without an error. Imports no torch."""

import threading
from dataclasses import dataclass, field
from typing import Literal

# How an order ended. returned: the trainable returned by itself; beyond: it tried to report more
# steps than its trial has; empty: neither, or unknown.
How = Literal["", "returned", "beyond"]
SIGTERM_TEXT = "was told to end (SIGTERM)"


class StopTrial(BaseException):
    """The controller ends this order; do not catch it, so that the rank is free for the next."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Preempted(StopTrial):
    """The order loses its slot; its trial continues elsewhere, from its last checkpoint."""


@dataclass(eq=False)
class Notice:
    """A notice that this process will end soon: clouds and Ray send SIGTERM some time before."""

    _given: threading.Event = field(default_factory=threading.Event)

    def __reduce__(self) -> tuple[type["Notice"], tuple[()]]:
        return Notice, ()  # a copy in another process gets that process's signals

    @property
    def given(self) -> bool:
        """Whether the notice was given."""
        return self._given.is_set()

    def give(self) -> None:
        """Give the notice; safe to call from a signal handler."""
        self._given.set()

    def wait(self) -> None:
        """Block until the notice is given."""
        self._given.wait()
