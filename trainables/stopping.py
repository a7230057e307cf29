"""What ends an order before its last step though nothing in it is wrong. Without torch."""

import threading
from dataclasses import dataclass, field


class StopTrial(BaseException):
    """The controller ends this order; let it pass, so that the rank is free for the next."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Preempted(StopTrial):
    """The order's place is taken from it: its trial goes on elsewhere, from its last checkpoint."""


@dataclass(eq=False)
class Notice:
    """That this process is to end soon: clouds and Ray say so by SIGTERM, some time before."""

    _given: threading.Event = field(default_factory=threading.Event)

    def __reduce__(self) -> tuple[type["Notice"], tuple[()]]:
        return Notice, ()  # a copy in another process hears of that one's signals

    @property
    def given(self) -> bool:
        """Whether it was."""
        return self._given.is_set()

    def give(self) -> None:
        """Also from a handler of signals."""
        self._given.set()

    def wait(self) -> None:
        """Return once it is given."""
        self._given.wait()
