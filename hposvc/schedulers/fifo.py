"""Every trial runs to its end, in the order proposed."""

from dataclasses import dataclass, field
from typing import ClassVar

from hposvc.schedulers.scheduler import (
    Closed,
    Decision,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Over,
    Report,
    Wait,
)


@dataclass
class _Queue:
    last: int
    running: set[str] = field(default_factory=set)
    closed: bool = False

    def apply(self, fact: Fact) -> None:
        if isinstance(fact, Ordered):
            self.running.add(fact.trial)
        elif isinstance(fact, Left):
            self.running.discard(fact.trial)
        elif isinstance(fact, Closed):
            self.closed = True

    def next(self) -> NewTrial | Wait | Over:
        if not self.closed:
            return NewTrial(self.last)
        return Wait() if self.running else Over()

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "fifo")


@dataclass(frozen=True)
class Fifo:
    """No early stopping."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, first: int, last: int) -> _Queue:
        return _Queue(last)
