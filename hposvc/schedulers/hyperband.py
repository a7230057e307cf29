"""Hyperband: brackets of successive halving, from many short trials to few long ones.

With R = last/first, bracket s (s = s_max, …, 0; s_max = floor(log_eta(R))) begins with
n = ceil((s_max + 1)/(s + 1) * eta^s) trials at step last/eta^s, and its i-th rung lies at
last/eta^(s - i), rounded down: the lowest at `first` if R is a power of eta, the highest always
at `last`. When the n_i = floor(n/eta^i) trials of a rung have all paused there or left, the best
floor(n/eta^(i+1)) go on, and the others are stopped at once. Bracket 0 runs its trials straight
to the end. After bracket 0 comes bracket s_max again, for as long as there are new trials.
(Table 1 of the paper, and some programs, round (s_max + 1)/(s + 1) before they multiply.)

What the paper leaves open:

* Nobody idles at a barrier: a free slot goes to the oldest bracket with a trial to promote, and
  otherwise to a new trial, of the next bracket if all before it are full. Only a trial of a
  bracket's own, one that has to be retried say, can hold the bracket up.
* A trial that left, or diverged, is the worst of its rung but counts there: the rung promotes as
  many as it would have. Whoever leaves after the rung's decision leaves its place empty.
* If the trials run out, the bracket that is being filled makes do with what it has: n is their
  number, and while any of them has a finite loss, each rung promotes one at least. So a bracket
  of two still has a trial that runs to the end.
* Equal losses rank in the order in which the trials came to the rung.
* Who failed and is tried again comes back to the rung it was on its way to. If that has been
  decided meanwhile, it goes on if it would have then: if it is among as many of the best as the
  rung promotes, of those that were compared there and itself. Further up it is one of those that
  are at the rung, for as long as that is undecided.
* With several metrics the trials of a rung are ranked front by front (standing.py). All that no
  other of them dominates go on, even where they are more than the rung would promote.

Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization
(JMLR 2018), Algorithm 1.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from hposvc.schedulers.bracket import Bracket, Kind, kind_of
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Cut,
    Decision,
    Fact,
    Halted,
    Left,
    NewTrial,
    Opened,
    Ordered,
    Over,
    Paused,
    Plan,
    Reopened,
    Report,
    Running,
    Scheduler,
    Wait,
)
from hposvc.schedulers.standing import Losses


@dataclass(frozen=True)
class Hyperband:
    """Halves in several brackets, so that nobody has to know how early a trial can be judged."""

    eta: int = 3
    brackets: int | None = None  # this many kinds at most, from s_max down; None: all
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.eta < 2:
            raise ValueError(
                f"eta is {self.eta}; choose a whole number from 2 up (the paper has 3)"
            )
        if self.brackets is not None and self.brackets < 1:
            raise ValueError(
                f"brackets is {self.brackets}; choose 1 or more, or leave it out for all of them"
            )

    def scheduler(self, plan: Plan) -> Scheduler:
        most = 0
        while plan.first * self.eta ** (most + 1) <= plan.last:
            most += 1
        kinds = tuple(kind_of(s, most, self.eta, plan.last) for s in range(most, -1, -1))
        return _Brackets(kinds[: self.brackets], plan.metrics)


@dataclass(frozen=True)
class Bohb(Hyperband):
    """Hyperband whose trials a model proposes; `search.method` is the model.

    It learns from the highest rung that enough trials have reached (searchers/fidelity.py).
    Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale
    (ICML 2018), section 4: Hyperband decides how long each trial runs, the model which are run.
    """


@dataclass
class _Brackets(Running):
    kinds: tuple[Kind, ...]
    metrics: int = 1
    begun: int = 0
    filling: Bracket | None = None  # the bracket that new trials come to
    live: dict[int, Bracket] = field(default_factory=dict)  # by number; no more than run, and one
    at: dict[str, Bracket] = field(default_factory=dict)  # of every trial
    aims: dict[str, int] = field(default_factory=dict)  # the step each was last ordered to
    cuts: dict[str, Cut] = field(default_factory=dict)  # of the trials that have not left
    late: dict[str, Losses] = field(default_factory=dict)  # whose rungs were decided without them
    due: dict[str, int] = field(default_factory=dict)  # of these: to be ordered, up to that step

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Ordered):
            self.aims[fact.trial] = fact.until
        bracket = self._concerned(fact)
        if bracket is not None:
            self._settle(bracket)

    def _concerned(self, fact: Fact) -> Bracket | None:
        """Tell the fact to the bracket that it is about."""
        match fact:
            case Halted():
                return None
            case Opened():
                return self._refill()
            case Closed():
                if self.filling is not None:
                    self.filling.full = True
                return self.filling
            case Reopened():
                return self._return(fact)
            case Ordered() if fact.trial not in self.at:
                return self._enter(fact.trial)
        bracket = self.at.get(fact.trial)
        if fact.trial in self.late:
            self._catch_up(self.at[fact.trial], fact)
        elif bracket is not None:
            self._move(bracket, fact)
        return bracket

    def _refill(self) -> Bracket | None:
        """There are new trials again: the bracket that made do with fewer waits for them."""
        bracket = self.filling
        if bracket is not None and bracket.full:
            bracket.full = bracket.decided = False
            bracket.due.clear()
            self._spare(bracket)
            self.live[bracket.number] = bracket
        return bracket

    def _spare(self, bracket: Bracket) -> None:
        """Its rung is open again: who was cut is not."""
        for trial in list(self.late):
            if trial in self.cuts and self.at[trial] is bracket:
                bracket.join(trial, self.late.pop(trial), out=False)
        for trial in bracket.losses:
            self.cuts.pop(trial, None)

    def _return(self, fact: Reopened) -> Bracket:
        """A trial that failed is about to be ordered again, to the rung that it did not reach."""
        bracket = self.at[fact.trial]
        losses = fact.report.vector if fact.report is not None else (math.inf,)
        if bracket.undecided(bracket.kind.steps.index(self.aims[fact.trial])):
            bracket.join(fact.trial, losses, out=True)
        else:
            self.late[fact.trial] = losses
        return bracket

    def _catch_up(self, bracket: Bracket, fact: Ordered | Report | Paused | Left) -> None:
        """One that is late goes from rung to rung until it is where the others are."""
        trial, rung = fact.trial, bracket.kind.steps.index(self.aims[fact.trial])
        match fact:
            case Ordered():
                self.cuts.pop(trial, None)  # see _stray
                comes = self.due.pop(trial, None) is not None
                if bracket.undecided(rung):
                    bracket.came += comes
                    bracket.join(trial, self.late.pop(trial), out=True)
            case Report():
                self.late[trial] = fact.vector
            case Paused() if bracket.undecided(rung):
                bracket.join(trial, self.late.pop(trial), out=False)
            case Paused():
                self._judge(bracket, trial, rung)
            case Left():
                self._forget(trial)

    def _judge(self, bracket: Bracket, trial: str, rung: int) -> None:
        """Whether a late trial would have gone on from a rung that is decided."""
        losses, step = self.late[trial], bracket.kind.steps[rung]
        if rung not in bracket.settled:  # see _stray
            self.due[trial] = bracket.kind.steps[rung + 1]
            return
        place, most = bracket.place(trial, losses, rung)
        if place > most:
            where = f"of {len(bracket.settled[rung]) + 1} at step {step} of bracket"
            detail = f"place {place} {where} {bracket.number + 1}, {most} go on; it came late"
            self.cuts[trial] = Cut(trial, "rung", detail)
        elif bracket.rung == rung:  # nobody has gone on yet
            del self.late[trial]
            bracket.join(trial, losses, out=False)
            bracket.due[trial] = None
            self.live[bracket.number] = bracket
        else:
            self.due[trial] = bracket.kind.steps[rung + 1]

    def _forget(self, trial: str) -> None:
        """It is over, as far as is known."""
        self.late.pop(trial, None)
        self.due.pop(trial, None)
        self.cuts.pop(trial, None)

    def _enter(self, trial: str) -> Bracket:
        """A new trial comes; the last one may be ordered when it is known to be the last."""
        bracket = self.filling
        if bracket is None:
            kind = self.kinds[self.begun % len(self.kinds)]
            bracket = self.filling = Bracket(self.begun, kind, self.metrics, full=self.closed)
            self.begun += 1
        if bracket.decided:  # that was too early
            self._spare(bracket)
        self.live[bracket.number] = self.at[trial] = bracket
        bracket.enter(trial)
        if bracket.trials == bracket.kind.trials:
            self.filling = None
        return bracket

    def _move(self, bracket: Bracket, fact: Ordered | Report | Paused | Left) -> None:
        match fact:
            case Ordered(trial=trial) if trial in bracket.due:
                if bracket is self.filling:
                    self.filling = None
                bracket.promote(trial)
            case Ordered(trial=trial, until=until) if until > bracket.kind.steps[bracket.rung]:
                self._stray(bracket, trial)
            case Report(trial=trial) if trial in bracket.losses:
                bracket.losses[trial] = fact.vector
            case Paused(trial=trial):
                bracket.out.discard(trial)
            case Left(trial=trial):
                bracket.leave(trial)
                self._forget(trial)

    def _stray(self, bracket: Bracket, trial: str) -> None:
        """One goes on that was not to: so it was in a journal that was begun by an earlier version.

        There those that were tried again went on alone, up to the end.
        """
        self.late[trial] = bracket.losses.get(trial, (math.inf,))
        bracket.leave(trial)
        self.cuts.pop(trial, None)

    def _settle(self, bracket: Bracket) -> None:
        """Decide the bracket's rung if it is complete; a bracket that has nothing left is over."""
        if bracket.complete:
            self.cuts |= {cut.trial: cut for cut in bracket.decide()}
        if bracket.decided and not bracket.due:
            self.live.pop(bracket.number, None)

    def next(self) -> NewTrial | Advance | Wait | Over:
        for trial, until in self.due.items():
            return Advance(trial, until)
        for bracket in self.live.values():
            if bracket.due:
                return Advance(next(iter(bracket.due)), bracket.target)
        if self.closed:
            return self.rest()
        if self.filling is not None:
            return NewTrial(self.filling.kind.steps[0])
        return NewTrial(self.kinds[self.begun % len(self.kinds)].steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")

    def cut(self) -> list[Cut]:
        return list(self.cuts.values())

    def width(self) -> int:
        late = len(self.late.keys() - self.cuts.keys())
        return late + sum(bracket.width for bracket in self.live.values())
