"""The checkpoints of a sweep: which are kept, which other trials borrow, which can be deleted.

Under a quota the first to go are those that only an extended sweep would miss: checkpoints of ended
trials, then those beside the one that a trial continues from; of each, the worst trials' first.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from hposvc.spec.sections import Checkpoints
from hposvc.state.trial import TrialState
from trainables.contract import Saved

LAST_ALONE = Checkpoints(keep_last=1, keep_best=0)  # what a replicate needs until its end


@dataclass
class CheckpointManager:
    """The kept checkpoints of all trials; part of a sweep's state, so only events change it."""

    keep: Checkpoints
    prized: Callable[[], Collection[str]] = field(default=lambda: (), compare=False)  # best trials
    trials: dict[str, TrialState] = field(
        default_factory=dict, compare=False, repr=False
    )  # and replicates
    dropped: list[Saved] = field(default_factory=list)  # no longer needed, to be deleted
    lent: dict[str, tuple[str, Saved]] = field(default_factory=dict)  # borrower: owner, checkpoint
    size: int = 0  # bytes of all kept checkpoints
    largest: int = 0  # bytes of the largest checkpoint so far
    _loose: set[str] = field(default_factory=set)  # trials that may keep needless checkpoints
    _spared: set[str] = field(default_factory=set)  # the prized trials, as of the last look

    @property
    def quota(self) -> int | None:
        """The most bytes that may be kept; None: any number."""
        return self.keep.quota

    @property
    def over(self) -> bool:
        """Whether more bytes are needed, and so kept, than the quota allows."""
        return self.quota is not None and self.size > self.quota

    def all(self) -> Iterator[Saved]:
        """Yield all kept checkpoints."""
        for trial in self.trials.values():
            yield from trial.checkpoints

    def take(self, trial: TrialState | None, saved: Saved) -> None:
        """Record a checkpoint of a running trial; None: a rank of a lost order still runs."""
        if trial is None:
            self.dropped.append(saved)
            return
        trial.checkpoints.append(saved)
        self.count(saved)
        if saved.within or trial.has_reported(saved.step):  # no report of it is still to come
            self.tidy(trial)

    def count(self, saved: Saved) -> None:
        """Add a kept checkpoint to the sizes."""
        self.size += saved.size
        self.largest = max(self.largest, saved.size)

    def drop(self, checkpoints: Collection[Saved]) -> None:
        """Give up checkpoints that were kept and are no longer needed."""
        self.dropped += checkpoints
        self.size -= sum(saved.size for saved in checkpoints)

    def forget(self, trial: TrialState) -> None:
        """Drop all checkpoints of a trial that nobody continues."""
        self.drop(trial.checkpoints)
        trial.checkpoints = []

    def tidy(self, trial: TrialState) -> None:
        """Drop what neither the trial nor a borrower needs, and what exceeds the quota."""
        self._prune(trial)
        self.shrink()

    def _prune(self, trial: TrialState) -> None:
        if trial.id in self.lent and trial.borrowed_checkpoint is None:
            owner, _ = self.lent.pop(trial.id)
            self._prune(self.trials[owner])
        if trial.replicate_of is None:
            self.drop(prune(trial, self.keep, self._lent()))
        elif trial.over and trial.ended_from is None:
            self.forget(trial)
        else:
            self.drop(prune(trial, LAST_ALONE, ()))
        self._loose.add(trial.id)

    def shrink(self) -> None:
        """Drop needless checkpoints until the quota is met.

        If that does not suffice, the next call looks only at trials that changed since then: while
        a quota can't be met, a report costs no look at the other trials.
        """
        if not self.over:
            return
        prized = {*self.prized()}
        self._loose |= self._spared - prized
        self._spared = prized
        for trial, saved in sorted(self._idle(), key=_worst_first):
            if not self.over:
                return
            trial.checkpoints.remove(saved)
            self.drop([saved])
        self._loose.clear()

    def _idle(self) -> Iterator[tuple[TrialState, Saved]]:
        """Yield the checkpoints from which no trial continues, except those of the best trials."""
        lent = self._lent()
        for name in self._loose:
            trial = self.trials[name]
            held = {*lent, *(saved.path for saved in _needed(trial))} if trial.checkpoints else lent
            best = prize(trial) if name in self._spared else None
            yield from (
                (trial, saved)
                for saved in trial.checkpoints
                if saved.path not in held and saved != best
            )

    def _lent(self) -> set[str]:
        return {saved.path for _, saved in self.lent.values()}

    def lend(self, trial: TrialState) -> None:
        """Hold the checkpoint that a trial copies for as long as the trial may need it."""
        order = trial.order
        if order is None:
            return
        # A checkpoint amid a step belongs to the trial's old values.
        obsolete = [saved for saved in trial.checkpoints if saved.within and saved != order.start]
        trial.checkpoints = [saved for saved in trial.checkpoints if saved not in obsolete]
        self.drop(obsolete)
        self._loose.add(trial.id)
        if order.parent is not None and order.start is not None:
            self._hold(trial.id, order.parent, order.start)

    def discard(self, trial: TrialState) -> None:
        """Give up the damaged start of the trial's order; the next order takes an older one."""
        order = trial.order
        if order is None:
            return
        owner = self.trials[order.parent] if order.parent else trial
        if order.start in owner.checkpoints:
            owner.checkpoints.remove(order.start)
            self.size -= order.start.size
        borrowers = [name for name, (_, saved) in self.lent.items() if saved == order.start]
        for user in (owner, *(self.trials[name] for name in borrowers)):
            if user.order is None:  # it waits for an order, and may have no other checkpoint
                self.mend(user)

    def mend(self, trial: TrialState) -> None:
        """Find a trial another start if the borrowed checkpoint that it has is gone."""
        self._loose.add(trial.id)
        start, _, parent = trial.resume_point
        if parent is None or start in self.trials[parent].checkpoints:
            return
        start, parent = self.offer(self.trials[parent])
        trial.segments[-1] = replace(trial.segments[-1], start=start, parent=parent)
        if start is not None and parent is not None:
            self._hold(trial.id, parent, start)

    def offer(self, trial: TrialState) -> tuple[Saved | None, str | None]:
        """Return the checkpoint to copy from a trial, and its owner; None and None: there is none.

        A trial without a checkpoint of its own offers the one that it copied itself.
        """
        seen: set[str] = set()
        while trial.id not in seen:
            seen.add(trial.id)
            start, _, parent = trial.boundary_point
            owner = self.trials[parent or trial.id]
            if start is None or start in owner.checkpoints:
                return (None, None) if start is None else (start, owner.id)
            trial = owner
        return None, None

    def _hold(self, borrower: str, owner: str, saved: Saved) -> None:
        before = self.lent.get(borrower)
        self.lent[borrower] = (owner, saved)
        if before is not None and before != (owner, saved):
            self.tidy(self.trials[before[0]])


def prize(trial: TrialState) -> Saved | None:
    """Return the checkpoint of a trial's value, or else its best; None: none at a step boundary."""
    usable = trial.usable()
    selected = None if trial.selected is None else trial.checkpoint_at(trial.selected[0])
    return selected or min(usable, key=lambda saved: _loss(trial, saved), default=None)


def _needed(trial: TrialState) -> list[Saved]:
    """Return the checkpoints that an unfinished trial may continue from or report later."""
    if trial.over:
        return []
    start = None if trial.order is None else trial.order.start
    unreported = [saved for saved in trial.checkpoints if not trial.has_reported(saved.step)]
    return [
        saved
        for saved in (start, trial.resume_point[0], trial.boundary_point[0], *unreported)
        if saved
    ]


def _worst_first(idle: tuple[TrialState, Saved]) -> tuple[bool, float, int, bool]:
    trial, saved = idle
    return not trial.over, -trial.loss, trial.number, saved == prize(trial)


def _loss(trial: TrialState, saved: Saved) -> tuple[bool, float]:
    value = trial.steps.get(saved.step, math.nan)
    return math.isnan(value), trial.metric.loss(value)  # NaN is the worst


def prune(trial: TrialState, keep: Checkpoints, lent: Collection[str]) -> list[Saved]:
    """Remove the checkpoints that a trial need not keep, and return them.

    It keeps the last ones, one at a step boundary among them, those of the best steps, and the one
    that its order started from, which a rank may still be reading.

    Args:
        lent: paths of the checkpoints that other trials borrow.
    """
    usable, partial = trial.usable(), trial.mid_step_checkpoint
    lapsed = [saved for saved in trial.checkpoints if saved.within and saved != partial]
    last = max(1, keep.keep_last - (partial is not None))
    if len(usable) <= last and not lapsed:
        return []
    best = sorted(usable, key=lambda saved: _loss(trial, saved))[: keep.keep_best]
    kept = {saved.path for saved in (*usable[-last:], *best)} | set(lent)
    if trial.order is not None and trial.order.start is not None:
        kept.add(trial.order.start.path)
    dropped = [saved for saved in (*usable, *lapsed) if saved.path not in kept]
    trial.checkpoints = [saved for saved in trial.checkpoints if saved not in dropped]
    return dropped
