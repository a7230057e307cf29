"""Which trials of a sweep wait, run, rest or are over, and how each comes into its next phase."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hposvc.events import TIMEOUT
from hposvc.finalists import Finals
from hposvc.ranking import Front, Gains, Ranking
from hposvc.schedulers import scheduler as facts
from hposvc.shelf import Shelf
from hposvc.spec import SweepSpec
from hposvc.trial import OVER, TrialPhase, TrialState
from searchers.searcher import Observation


@dataclass
class Phases:
    """The trials of a sweep; part of its state, so it changes by events only."""

    spec: SweepSpec
    trials: dict[str, TrialState] = field(default_factory=dict)  # in the order proposed
    waiting: dict[str, None] = field(default_factory=dict)  # trials that need an order, first first
    cooling: dict[str, float] = field(default_factory=dict)  # the same, and not before that time
    orders: dict[int, str] = field(default_factory=dict)  # the trials that a slot has
    counts: dict[TrialPhase, int] = field(default_factory=dict)
    shelf: Shelf = field(init=False)
    finals: Finals = field(init=False)
    results: int = 0  # outcomes so far: grows when a searcher can learn something
    ended_s: float = 0.0  # that ended orders held ranks, all of them added up
    gains: Gains = field(default_factory=Gains)
    _observed: list[Observation] = field(default_factory=list)
    _changed: set[str] = field(default_factory=set)
    _facts: list[facts.Fact] = field(default_factory=list)
    _ranking: Ranking | Front = field(init=False)

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.spec.checkpoints, self.trials, self._prized)
        self.finals = Finals(self.shelf)
        self._ranking = Front(self.trials) if self.spec.several else Ranking()

    @property
    def front(self) -> list[str]:
        """The best trials, in the order proposed: of one metric one, of several a front.

        Empty while no trial has a value within the limits. Once finalists were trained again, it is
        the one with the best mean.
        """
        champion = self.finals.champion
        return self._ranking.best() if champion is None else [champion]

    def _prized(self) -> list[str]:
        """The trials whose best checkpoint no quota takes."""
        finalists = self.spec.finalists
        leaders = [] if finalists is None else self.leaders(finalists.top)
        return [*self.front, *self.finals.repeats, *(trial.id for trial in leaders)]

    @property
    def best(self) -> str | None:
        """The trial with the best value; None while there is none, or with several metrics."""
        return None if self.spec.several else next(iter(self.front), None)

    def leaders(self, most: int) -> list[TrialState]:
        """The best trials with a value within the limits, the best first; of one metric."""
        assert isinstance(self._ranking, Ranking)  # several metrics have no finalists
        return [self.trials[name] for name in self._ranking.leaders(most)]

    def history(self) -> Sequence[Observation]:
        """What a searcher may see: every trial, in the order proposed.

        One list for all calls, so that a call costs what has changed since: copy it to keep it.
        """
        for name in self._changed:
            trial = self.trials[name]
            self._observed[trial.number] = trial.observation()
        self._changed.clear()
        return self._observed

    def live(self) -> Iterable[TrialState]:
        """The trials that a slot has."""
        return [self.trials[name] for name in self.orders.values()]

    def _release(self, order: int, time: float) -> TrialState | None:
        """The trial whose order this was; None if the order is not out any more."""
        name = self.orders.pop(order, None)
        if name is None:
            return None
        trial = self.trials[name]
        self._charge(trial, time)
        return trial

    def _charge(self, trial: TrialState, time: float) -> None:
        """The trial's order held a slot up to then."""
        before, after = trial.rank_s, trial.rank_s_at(time)
        trial.seconds += max(0.0, time - trial.ordered_at)
        trial.rank_s = after
        self.ended_s += after - before

    def _lose(self, trial: TrialState) -> None:
        """Its order is gone before its time: it needs a new one, or it had been told to stop."""
        trial.order = None
        if trial.stop is not None or trial.diverged:
            self._settle(trial)
        else:
            self.waiting[trial.id] = None
            self.shelf.mend(trial)
            self._move(trial, "PENDING")
            if trial.stranded:
                self._give_up(trial, "damaged")

    def _settle(self, trial: TrialState) -> None:
        """Its order is done: over, or paused below the end."""
        trial.order = None
        self.waiting.pop(trial.id, None)
        self.cooling.pop(trial.id, None)
        if trial.diverged or trial.step >= self.spec.last_step:
            trial.halted = None  # this end is its own
        if trial.diverged:
            trial.reason = "diverged"
            self._move(trial, "STOPPED")
        elif trial.step >= self.spec.last_step:
            trial.stop = None  # it came too late, and would end the trial if it became longer
            trial.killed = False
            self._move(trial, "COMPLETED")
        elif trial.stop is not None and trial.stop[1] == TIMEOUT:
            trial.stop, trial.killed = None, False  # it may be tried again
            trial.failures[TIMEOUT] = 1
            self._give_up(trial, TIMEOUT)
        elif trial.stop is not None:
            trial.reason = trial.stop[1]
            self._move(trial, "STOPPED")
        elif trial.step < trial.until:
            trial.reason = "returned early"
            self._move(trial, "COMPLETED")
        else:
            self._move(trial, "PAUSED")
        self.shelf.tidy(trial)

    def _move(self, trial: TrialState, phase: TrialPhase) -> None:
        """It comes into its next phase, and the scheduler is told."""
        self._count(trial, phase)
        if phase == "PAUSED":
            self._facts.append(facts.Paused(trial.id))
        elif phase in OVER:
            left = facts.Left if trial.halted is None else facts.Halted
            self._facts.append(left(trial.id))

    def _count(self, trial: TrialState, phase: TrialPhase) -> None:
        before, trial.state = trial.state, phase
        self.counts[before] -= 1
        self.counts[phase] = self.counts.get(phase, 0) + 1
        self._changed.add(trial.id)
        if "FAILED" in (before, phase):  # a value counts while its trial has not failed
            self._ranking.update(trial)
        if phase == "PAUSED" or phase in OVER:
            self.results += 1
            if trial.halted is None and not self.spec.several:
                self.gains.take(trial.id, self._best_loss, self.spec.stop.plateau)

    @property
    def _best_loss(self) -> float:
        best = self.best
        return math.inf if best is None else self.trials[best].loss

    def _give_up(self, trial: TrialState, reason: str) -> None:
        self.waiting.pop(trial.id, None)
        self.cooling.pop(trial.id, None)
        trial.order, trial.reason = None, reason
        self._move(trial, "FAILED")
        self.shelf.tidy(trial)
