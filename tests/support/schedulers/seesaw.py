"""A scheduler of two trials: at step 3 both pause; then the worse copies the better, or is cut."""

from dataclasses import dataclass, field
from typing import ClassVar

from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    Left,
    NewTrial,
    Paused,
    Report,
    Running,
    TrialStop,
    Wait,
)


@dataclass(frozen=True)
class Halve:
    donor: str | None

    def values(self, space, params, rng):
        return {**params, "lr": params["lr"] / 2}


@dataclass
class _Seesaw(Running):
    last: int
    cuts: bool
    losses: dict[str, float] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    copies: ClassVar[bool] = True

    def apply(self, fact):
        super().apply(fact)
        if isinstance(fact, Report) and fact.step == 3:
            self.losses[fact.trial] = fact.loss
        elif isinstance(fact, Paused):
            self.waiting.append(fact.trial)
        elif isinstance(fact, Left) and fact.trial in self.waiting:
            self.waiting.remove(fact.trial)

    def next(self):
        if not self.closed:
            return NewTrial(self.last, (3,))
        if len(self.losses) == 2 and not self.trials_to_stop():
            best, worst = sorted(self.losses, key=self.losses.get)
            for trial in (best, worst):
                if trial in self.waiting and trial not in self.running:
                    return Advance(trial, self.last, (), Halve(best) if trial == worst else None)
        return Wait() if self.waiting else self.idle_move()

    def judge(self, report):
        return Decision("pause", "seesaw")

    def trials_to_stop(self):
        if not self.cuts or len(self.waiting) < 2:
            return ()
        return (TrialStop(max(self.waiting, key=self.losses.get), "seesaw", "the worse"),)


@dataclass(frozen=True)
class Seesaw:
    cuts: bool = False
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan):
        return _Seesaw(plan.last, self.cuts)
