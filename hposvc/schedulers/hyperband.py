"""Hyperband: brackets of successive halving, from many short trials to few long ones.

With R = last/first, bracket s (s = s_max, …, 0; s_max = floor(log_eta(R))) begins with
n = ceil((s_max + 1)/(s + 1) * eta^s) trials at step last/eta^s, and its i-th rung lies at
last/eta^(s - i), rounded down: the lowest at `first` if R is a power of eta, the highest always
at `last`. When the n_i = floor(n/eta^i) trials of a rung have all paused there or left, the best
floor(n/eta^(i+1)) go on, and the others are stopped at once. Bracket 0 runs its trials straight
to the end. Bracket 0 is followed by bracket s_max again, as long as there are new trials.
(Table 1 of the paper, and some programs, round (s_max + 1)/(s + 1) before they multiply.)

Choices that the paper leaves open:

* Slots never idle while a rung is undecided: a free slot goes to the oldest bracket with a trial to
  promote, otherwise to a new trial, which joins the next bracket if all brackets before are full.
  A bracket waits for its own trials only, for instance for one that has to be retried.
* A trial that left or diverged ranks last at its rung but counts there: the rung promotes as many
  trials as without the loss. A trial leaving after its rung's decision is not replaced.
* If the trials run out, the last bracket is decided with the trials it has: n is their number, and
  each rung promotes at least one trial while any has a finite loss. So even a bracket of two trials
  trains one of them to the end.
* Trials with equal losses rank in the order in which they came to the rung.
* A failed trial that is retried returns to the rung that it was heading for. If that rung has been
  decided meanwhile, the trial goes on if it would have gone on then: if its rank among the trials
  compared there, itself included, is no lower than the number that the rung promotes. At a higher
  rung that is still undecided it is compared like any other trial.
* With several metrics the trials of a rung are ranked front by front (rung_ranking.py). All trials
  that no other trial of the rung dominates go on, even if the rung would promote fewer.

Source: Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization
(JMLR 2018), Algorithm 1.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from hposvc.schedulers.hyperband_bracket import Bracket, BracketShape, bracket_shape
from hposvc.schedulers.rung_ranking import Losses
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Decision,
    Fact,
    Halted,
    Left,
    NewTrial,
    Opened,
    Ordered,
    Paused,
    Plan,
    Reopened,
    Report,
    Running,
    Scheduler,
    SearchDone,
    TrialStop,
    Wait,
)


@dataclass(frozen=True)
class Hyperband:
    """Successive halving in several brackets, some of which judge trials early and some late."""

    eta: int = 3  # one trial in eta goes on from a rung
    brackets: int | None = None  # use at most this many values of s, from s_max down; None: all
    # Longer trials would need other brackets than those that the trials were assigned to.
    fixed_length: ClassVar[bool] = True
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
        s_max = 0
        while plan.first * self.eta ** (s_max + 1) <= plan.last:
            s_max += 1
        shapes = tuple(bracket_shape(s, s_max, self.eta, plan.last) for s in range(s_max, -1, -1))
        return _Brackets(shapes[: self.brackets], plan.metrics)


@dataclass(frozen=True)
class Bohb(Hyperband):
    """Hyperband whose trials a model proposes; `search.method` is the model.

    The model learns from the highest rung that enough trials have reached (searchers/fidelity.py).
    Source: Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale
    (ICML 2018), section 4: Hyperband decides how long each trial runs, the model which ones run.
    """

    needs_model: ClassVar[bool] = True


@dataclass
class _Brackets(Running):
    shapes: tuple[BracketShape, ...]
    metrics: int = 1
    begun: int = 0  # number of brackets begun
    filling: Bracket | None = None  # the bracket that new trials join
    live: dict[int, Bracket] = field(default_factory=dict)  # by number; one more than run, at most
    bracket_of: dict[str, Bracket] = field(default_factory=dict)  # the bracket of every trial
    targets: dict[str, int] = field(default_factory=dict)  # step each trial was last ordered to
    stops: dict[str, TrialStop] = field(default_factory=dict)  # of the trials that have not left
    late: dict[str, Losses] = field(default_factory=dict)  # trials absent at their rung's decision
    due: dict[str, int] = field(default_factory=dict)  # late trials to order, and up to which step

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Ordered):
            self.targets[fact.trial] = fact.last
        bracket = self._update_bracket(fact)
        if bracket is not None:
            self._decide_if_complete(bracket)

    def _update_bracket(self, fact: Fact) -> Bracket | None:
        """Apply the fact to the bracket that it concerns, and return that bracket, if any."""
        match fact:
            case Halted():
                return None
            case Opened():
                return self._reopen_filling()
            case Closed():
                if self.filling is not None:
                    self.filling.full = True
                return self.filling
            case Reopened():
                return self._readmit(fact)
            case Ordered() if fact.trial not in self.bracket_of:
                return self._add_new(fact.trial)
        bracket = self.bracket_of.get(fact.trial)
        if fact.trial in self.late:
            self._catch_up(self.bracket_of[fact.trial], fact)
        elif bracket is not None:
            self._update_trial(bracket, fact)
        return bracket

    def _reopen_filling(self) -> Bracket | None:
        """Reopen the bracket that was closed with fewer trials, since new trials come again."""
        bracket = self.filling
        if bracket is not None and bracket.full:
            bracket.full = bracket.decided = False
            bracket.due.clear()
            self._withdraw_stops(bracket)
            self.live[bracket.number] = bracket
        return bracket

    def _withdraw_stops(self, bracket: Bracket) -> None:
        """Withdraw the stops of the trials at a rung that is undecided again."""
        for trial in list(self.late):
            if trial in self.stops and self.bracket_of[trial] is bracket:
                bracket.add_late(trial, self.late.pop(trial), under_way=False)
        for trial in bracket.losses:
            self.stops.pop(trial, None)

    def _readmit(self, fact: Reopened) -> Bracket:
        """Take back a failed trial that is about to be ordered to the rung it did not reach."""
        bracket = self.bracket_of[fact.trial]
        losses = fact.report.vector if fact.report is not None else (math.inf,)
        if bracket.is_undecided_at(bracket.shape.steps.index(self.targets[fact.trial])):
            bracket.add_late(fact.trial, losses, under_way=True)
        else:
            self.late[fact.trial] = losses
        return bracket

    def _catch_up(self, bracket: Bracket, fact: Ordered | Report | Paused | Left) -> None:
        """Move a late trial from rung to rung until it is at the rung of the others."""
        trial, rung = fact.trial, bracket.shape.steps.index(self.targets[fact.trial])
        match fact:
            case Ordered():
                self.stops.pop(trial, None)  # see _follow_old_journal
                was_due = self.due.pop(trial, None) is not None
                if bracket.is_undecided_at(rung):
                    bracket.arrived += was_due
                    bracket.add_late(trial, self.late.pop(trial), under_way=True)
            case Report():
                self.late[trial] = fact.vector
            case Paused() if bracket.is_undecided_at(rung):
                bracket.add_late(trial, self.late.pop(trial), under_way=False)
            case Paused():
                self._judge_late(bracket, trial, rung)
            case Left():
                self._forget(trial)

    def _judge_late(self, bracket: Bracket, trial: str, rung: int) -> None:
        """Promote or stop a late trial, as the decided rung would have done."""
        losses, step = self.late[trial], bracket.shape.steps[rung]
        if rung not in bracket.decided_losses:  # see _follow_old_journal
            self.due[trial] = bracket.shape.steps[rung + 1]
            return
        rank, quota = bracket.late_rank(trial, losses, rung)
        if rank > quota:
            others = f"of {len(bracket.decided_losses[rung]) + 1} at step {step} of bracket"
            detail = (
                f"rank {rank} {others} {bracket.number + 1}, top {quota} continue; it came late"
            )
            self.stops[trial] = TrialStop(trial, "rung", detail)
        elif bracket.rung == rung:  # no trial of the rung has gone on yet
            del self.late[trial]
            bracket.add_late(trial, losses, under_way=False)
            bracket.due[trial] = None
            self.live[bracket.number] = bracket
        else:
            self.due[trial] = bracket.shape.steps[rung + 1]

    def _forget(self, trial: str) -> None:
        """Drop the records of a trial that is over, unless it comes back."""
        self.late.pop(trial, None)
        self.due.pop(trial, None)
        self.stops.pop(trial, None)

    def _add_new(self, trial: str) -> Bracket:
        """Add a new trial to the bracket being filled.

        The last trial may be ordered after the sweep was closed, and so after a first decision.
        """
        bracket = self.filling
        if bracket is None:
            shape = self.shapes[self.begun % len(self.shapes)]
            bracket = self.filling = Bracket(self.begun, shape, self.metrics, full=self.closed)
            self.begun += 1
        if bracket.decided:  # decided before this trial came
            self._withdraw_stops(bracket)
        self.live[bracket.number] = self.bracket_of[trial] = bracket
        bracket.enter(trial)
        if bracket.trials == bracket.shape.trials:
            self.filling = None
        return bracket

    def _update_trial(self, bracket: Bracket, fact: Ordered | Report | Paused | Left) -> None:
        match fact:
            case Ordered(trial=trial) if trial in bracket.due:
                if bracket is self.filling:
                    self.filling = None
                bracket.promote(trial)
            case Ordered(trial=trial) if fact.last > bracket.shape.steps[bracket.rung]:
                self._follow_old_journal(bracket, trial)
            case Report(trial=trial) if trial in bracket.losses:
                bracket.losses[trial] = fact.vector
            case Paused(trial=trial):
                bracket.under_way.discard(trial)
            case Left(trial=trial):
                bracket.leave(trial)
                self._forget(trial)

    def _follow_old_journal(self, bracket: Bracket, trial: str) -> None:
        """Follow a trial that was ordered past its rung without a promotion.

        This happens only in journals begun by an earlier version, in which retried trials went on
        alone, up to the end.
        """
        self.late[trial] = bracket.losses.get(trial, (math.inf,))
        bracket.leave(trial)
        self.stops.pop(trial, None)

    def _decide_if_complete(self, bracket: Bracket) -> None:
        """Decide the bracket's rung if it is complete; drop the bracket if no trial goes on."""
        if bracket.complete:
            self.stops |= {stop.trial: stop for stop in bracket.decide()}
        if bracket.decided and not bracket.due:
            self.live.pop(bracket.number, None)

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        for trial, until in self.due.items():
            return Advance(trial, until)
        for bracket in self.live.values():
            if bracket.due:
                return Advance(next(iter(bracket.due)), bracket.target)
        if self.closed:
            return self.idle_move()
        if self.filling is not None:
            return NewTrial(self.filling.shape.steps[0])
        return NewTrial(self.shapes[self.begun % len(self.shapes)].steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")

    def trials_to_stop(self) -> list[TrialStop]:
        return list(self.stops.values())

    def max_concurrency(self) -> int:
        late = len(self.late.keys() - self.stops.keys())
        return late + sum(bracket.max_concurrency for bracket in self.live.values())
