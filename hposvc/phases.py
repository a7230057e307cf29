"""Which trials of a sweep wait, run, rest or are over, and how each comes into its next phase."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hposvc.ranking import Front, Ranking
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
    orders: dict[int, str] = field(default_factory=dict)  # the trials that a slot has
    counts: dict[TrialPhase, int] = field(default_factory=dict)
    shelf: Shelf = field(init=False)
    results: int = 0  # outcomes so far: grows when a searcher can learn something
    _observed: dict[str, Observation] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _facts: list[facts.Fact] = field(default_factory=list)
    _ranking: Ranking | Front = field(init=False)

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.spec.checkpoints, self.trials)
        self._ranking = Front(self.trials) if self.spec.several else Ranking(self.trials)

    @property
    def front(self) -> list[str]:
        """The best trials, in the order proposed: of one metric one, of several a front.

        Empty while no trial has a value within the limits.
        """
        return self._ranking.best()

    @property
    def best(self) -> str | None:
        """The trial with the best value; None while there is none, or with several metrics."""
        return None if self.spec.several else next(iter(self.front), None)

    def history(self) -> list[Observation]:
        """What a searcher may see: every trial, in the order proposed."""
        for name in self._changed:
            self._observed[name] = self.trials[name].observation()
        self._changed.clear()
        return list(self._observed.values())

    def live(self) -> Iterable[TrialState]:
        """The trials that a slot has."""
        return [self.trials[name] for name in self.orders.values()]

    def _release(self, order: int, time: float) -> TrialState | None:
        """The trial whose order this was; None if the order is not out any more."""
        name = self.orders.pop(order, None)
        if name is None:
            return None
        trial = self.trials[name]
        trial.seconds += max(0.0, time - trial.ordered_at)
        return trial

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
        if trial.diverged:
            trial.reason = "diverged"
            self._move(trial, "STOPPED")
        elif trial.step >= self.spec.last_step:
            self._move(trial, "COMPLETED")
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
        self.counts[trial.state] -= 1
        self.counts[phase] = self.counts.get(phase, 0) + 1
        trial.state = phase
        self._changed.add(trial.id)
        self.results += phase == "PAUSED" or phase in OVER
        if phase == "PAUSED":
            self._facts.append(facts.Paused(trial.id))
        elif phase in OVER:
            self._facts.append(facts.Left(trial.id))

    def _give_up(self, trial: TrialState, reason: str) -> None:
        self.waiting.pop(trial.id, None)
        trial.order, trial.reason = None, reason
        self._move(trial, "FAILED")
        self.shelf.tidy(trial)
        self._ranking.update(trial)
