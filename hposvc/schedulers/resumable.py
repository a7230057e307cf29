"""Base of the schedulers whose trials run straight to the end, and go on if the end is moved."""

from bisect import bisect_right
from dataclasses import dataclass, field

from hposvc.schedulers.scheduler import (
    Advance,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Report,
    Running,
    SearchDone,
    Wait,
)


@dataclass
class Resumable(Running):
    """A scheduler without pauses of its own that advances its trials when they become longer."""

    last: int | None  # None: where their trainables return
    steps: tuple[int, ...] = ()  # at which trials are judged, below `last`
    unfinished: dict[str, int] = field(default_factory=dict)  # idle trials' step, below the end
    last_steps: dict[str, int] = field(default_factory=dict)  # last reported step of live trials

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                self.last_steps[fact.trial] = fact.step
            case Paused():  # the trial was ordered before the end was moved
                self.unfinished[fact.trial] = self.last_steps.get(fact.trial, 0)
            case Ordered() | Left():
                self.unfinished.pop(fact.trial, None)
                if isinstance(fact, Left):
                    self.last_steps.pop(fact.trial, None)

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        new = self.idle_move() if self.closed else NewTrial(self.last, self.steps)
        return self.resume_next() or new

    def resume_next(self) -> Advance | None:
        """Return the advance of the next trial below the end; None: no idle trial goes on."""
        waiting = (
            (name, step) for name, step in self.unfinished.items() if self.goes_on(name, step)
        )
        for trial, step in waiting:
            return Advance(trial, self.last, self.steps[bisect_right(self.steps, step) :])
        return None

    def goes_on(self, trial: str, step: int) -> bool:
        """Return whether a trial at a step below the end is good enough to train on."""
        return True

    def max_concurrency(self) -> int:
        return len(self.running) + len(self.unfinished)
