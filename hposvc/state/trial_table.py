"""The trials of a sweep by phase, and the transitions from phase to phase."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hposvc.events import TIMEOUT
from hposvc.schedulers import scheduler as facts
from hposvc.spec import SweepSpec
from hposvc.state.checkpoints import CheckpointManager
from hposvc.state.ranking import Front, PlateauCounter, Ranking
from hposvc.state.replicates import Replicates
from hposvc.state.trial import OVER, TrialPhase, TrialState
from searchers.searcher import Observation

RETURNED_EARLY = "returned early"
RECENT = 5  # trials that ended last


@dataclass
class TrialTable:
    """The trials of a sweep; part of its state, so only events change it."""

    spec: SweepSpec
    trials: dict[str, TrialState] = field(default_factory=dict)  # in the order proposed
    waiting: dict[str, None] = field(default_factory=dict)  # trials that need an order, in order
    backing_off: dict[str, float] = field(
        default_factory=dict
    )  # trials that need an order, and the earliest time of the next try
    orders: dict[int, str] = field(default_factory=dict)  # running trials, by order
    counts: dict[TrialPhase, int] = field(default_factory=dict)
    heights: Counter[int] = field(default_factory=Counter)  # trials by their last reported step
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))  # trials, newest last
    checkpoints: CheckpointManager = field(init=False)
    replicates: Replicates = field(init=False)
    results: int = 0  # grows when there is something for a searcher to learn
    ended_s: float = 0.0  # rank-seconds of ended orders
    gains: PlateauCounter = field(default_factory=PlateauCounter)
    _observed: list[Observation] = field(default_factory=list)
    _changed: set[str] = field(default_factory=set)
    _facts: list[facts.Fact] = field(default_factory=list)
    _ranking: Ranking | Front = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = CheckpointManager(self.spec.checkpoints, self.trials, self._prized)
        self.replicates = Replicates(self.checkpoints)
        self._ranking = Front(self.trials) if self.spec.several else Ranking()

    @property
    def front(self) -> list[str]:
        """The best trials, in the order proposed: one for one metric, a front for several.

        Empty while no trial has a value within the limits. After replicates it is the finalist
        with the best mean.
        """
        champion = self.replicates.champion
        return self._ranking.best() if champion is None else [champion]

    def _prized(self) -> list[str]:
        """Return the trials whose best checkpoint is kept whatever the quota."""
        finalists = self.spec.finalists
        leaders = [] if finalists is None else self.leaders(finalists.top)
        return [*self.front, *self.replicates.repeats, *(trial.id for trial in leaders)]

    @property
    def best(self) -> str | None:
        """The trial with the best value; None while there is none, or with several metrics."""
        return None if self.spec.several else next(iter(self.front), None)

    def leaders(self, most: int) -> list[TrialState]:
        """Return the best trials with a value within the limits, best first; for one metric."""
        assert isinstance(self._ranking, Ranking)  # several metrics have no finalists
        return [self.trials[name] for name in self._ranking.leaders(most)]

    def history(self) -> Sequence[Observation]:
        """Return all trials as a searcher may see them, in the order proposed.

        All calls return the same list, updated where trials have changed: copy it to keep it.
        """
        for name in self._changed:
            trial = self.trials[name]
            self._observed[trial.number] = trial.observation()
        self._changed.clear()
        return self._observed

    def live(self) -> Iterable[TrialState]:
        """Return the running trials."""
        return [self.trials[name] for name in self.orders.values()]

    def _release(self, order: int, time: float) -> TrialState | None:
        """Take an order off its trial and return the trial; None: the order is not running."""
        name = self.orders.pop(order, None)
        if name is None:
            return None
        trial = self.trials[name]
        self._charge(trial, time)
        return trial

    def _charge(self, trial: TrialState, time: float) -> None:
        """Add the time of a trial's order, which ends now, to the totals."""
        before, after = trial.rank_s, trial.rank_s_at(time)
        trial.seconds += max(0.0, time - trial.ordered_at)
        trial.rank_s = after
        self.ended_s += after - before

    def _lose(self, trial: TrialState) -> None:
        """Handle a lost order: the trial needs another one, unless it was told to stop."""
        trial.order = None
        if trial.intends("stop") or trial.diverged:
            self._settle(trial)
        else:
            trial.intent = None
            self.waiting[trial.id] = None
            self.checkpoints.mend(trial)
            self._move(trial, "PENDING")
            if trial.lost_lineage:
                self._give_up(trial, "damaged")

    def _settle(self, trial: TrialState) -> None:
        """Handle a finished order: the trial is over, or pauses below its last step."""
        trial.order = None
        self.waiting.pop(trial.id, None)
        self.backing_off.pop(trial.id, None)
        at_end = trial.came_to(self.spec.last_step)
        stop = trial.intent if trial.intends("stop") else None
        if trial.diverged:
            trial.intent = None if stop is None else replace(stop, ended_from=None)
            trial.reason = "diverged"
            self._move(trial, "STOPPED")
        elif at_end:
            trial.intent = None  # a stop came too late, and would end a trial that becomes longer
            self._move(trial, "COMPLETED")
        elif stop is None:
            trial.intent = None
            if not trial.done:
                trial.reason = RETURNED_EARLY
            self._move(trial, "PAUSED" if trial.done else "COMPLETED")
        elif stop.reason == TIMEOUT:
            trial.intent = None  # the trial may be tried again
            trial.failures[TIMEOUT] = 1
            self._give_up(trial, TIMEOUT)
        else:
            trial.reason = stop.reason
            self._move(trial, "STOPPED")
        self.checkpoints.tidy(trial)

    def _move(self, trial: TrialState, phase: TrialPhase) -> None:
        """Move a trial to its next phase, and tell the scheduler."""
        self._count(trial, phase)
        if phase == "PAUSED":
            self._facts.append(facts.Paused(trial.id))
        elif phase in OVER:
            left = facts.Left if trial.ended_from is None else facts.Halted
            self._facts.append(left(trial.id))

    def _count(self, trial: TrialState, phase: TrialPhase) -> None:
        before, trial.state = trial.state, phase
        self.counts[before] -= 1
        self.counts[phase] = self.counts.get(phase, 0) + 1
        self._changed.add(trial.id)
        if "FAILED" in (before, phase):  # a value counts while its trial has not failed
            self._ranking.update(trial)
        if phase in OVER:
            self.ended.append(trial.id)
        if phase == "PAUSED" or phase in OVER:
            self.results += 1
            if trial.ended_from is None and not self.spec.several:
                self.gains.take(trial.id, self._best_loss, self.spec.stop.plateau)

    @property
    def _best_loss(self) -> float:
        best = self.best
        return math.inf if best is None else self.trials[best].loss

    def _give_up(self, trial: TrialState, reason: str) -> None:
        self.waiting.pop(trial.id, None)
        self.backing_off.pop(trial.id, None)
        trial.order, trial.reason = None, reason
        self._move(trial, "FAILED")
        self.checkpoints.tidy(trial)
