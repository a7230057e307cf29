"""Trials that are to run straight to the end, and go on if it is moved."""

from bisect import bisect_right
from dataclasses import dataclass, field

from hposvc.schedulers.scheduler import (
    Advance,
    Fact,
    Left,
    Opened,
    Ordered,
    Paused,
    Reopened,
    Report,
    Running,
)


@dataclass
class Continuing(Running):
    """What a scheduler without pauses of its own does when trials become longer."""

    last: int
    steps: tuple[int, ...] = ()  # at which trials are judged, below `last`
    short: dict[str, int] = field(default_factory=dict)  # trials below the end, and their step
    at: dict[str, int] = field(default_factory=dict)  # the last step of those that run

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                self.at[fact.trial] = fact.step
            case Paused():  # it was ordered before the end was moved
                self.short[fact.trial] = self.at.get(fact.trial, 0)
            case Reopened(failed=False, report=Report() as report):
                self.short[fact.trial] = report.step
            case Ordered() | Left():
                self.short.pop(fact.trial, None)
                if isinstance(fact, Left):
                    self.at.pop(fact.trial, None)
            case Opened():
                self.last = fact.plan.last

    def carry_on(self) -> Advance | None:
        """The next of the trials that are below the end; None: all others run, or are over."""
        found = ((one, step) for one, step in self.short.items() if self.goes_on(one, step))
        for trial, step in found:
            return Advance(trial, self.last, self.steps[bisect_right(self.steps, step) :])
        return None

    def goes_on(self, trial: str, step: int) -> bool:
        """Whether a trial that stands at a step, below the end, is good enough for more."""
        return True

    def width(self) -> int:
        return len(self.running) + len(self.short)
