"""The checkpoints of a sweep: which are kept, which are lent to other trials, which may go."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from hposvc.spec import Checkpoints
from hposvc.trial import TrialState
from trainables.checkpoints.checkpoint import Saved


@dataclass
class Shelf:
    """Part of a sweep's state: it changes by events only."""

    keep: Checkpoints
    trials: Mapping[str, TrialState]
    dropped: list[Saved] = field(default_factory=list)  # nobody needs them any more
    lent: dict[str, tuple[str, Saved]] = field(default_factory=dict)  # borrower: owner, checkpoint

    def take(self, trial: TrialState, order: int, saved: Saved) -> None:
        """A checkpoint is there."""
        if trial.order is None or trial.order.id != order:
            self.dropped.append(saved)  # of a rank of a lost order that still works
            return
        trial.checkpoints.append(saved)
        if saved.within or saved.step in trial.steps:  # no report of it is still to come
            self.tidy(trial)

    def tidy(self, trial: TrialState) -> None:
        """Let go of what neither this trial, nor one that copies it, needs."""
        if trial.id in self.lent and trial.borrowed is None:
            owner, _ = self.lent.pop(trial.id)
            self.tidy(self.trials[owner])
        lent = {saved.path for _, saved in self.lent.values()}
        self.dropped += prune(trial, self.keep, lent)

    def lend(self, trial: TrialState) -> None:
        """Keep the checkpoint that a trial copies while the trial may need it."""
        order = trial.order
        if order is None:
            return
        # Updates within a step are of the values that it had, and go on from nowhere else.
        obsolete = [saved for saved in trial.checkpoints if saved.within and saved != order.start]
        trial.checkpoints = [saved for saved in trial.checkpoints if saved not in obsolete]
        self.dropped += obsolete
        if order.parent is not None and order.start is not None:
            self._hold(trial.id, order.parent, order.start)

    def discard(self, trial: TrialState) -> None:
        """What the trial's order started from is damaged: the next order takes an older one."""
        order = trial.order
        if order is None:
            return
        owner = self.trials[order.parent] if order.parent else trial
        if order.start in owner.checkpoints:
            owner.checkpoints.remove(order.start)
        borrowers = [name for name, (_, saved) in self.lent.items() if saved == order.start]
        for each in (owner, *(self.trials[name] for name in borrowers)):
            if each.order is None:  # it waits, and has perhaps no other
                self.mend(each)

    def mend(self, trial: TrialState) -> None:
        """Where it would go on from a copied checkpoint that is gone: from what there is."""
        start, _, parent = trial.newest
        if parent is None or start in self.trials[parent].checkpoints:
            return
        start, parent = self.offer(self.trials[parent])
        trial.lives[-1] = replace(trial.lives[-1], start=start, parent=parent)
        if start is not None and parent is not None:
            self._hold(trial.id, parent, start)

    def offer(self, trial: TrialState) -> tuple[Saved | None, str | None]:
        """What there is to copy of a trial, and whose that is; None and None: nothing.

        A trial that has no checkpoint of its own yet, or any more, offers the one that it copied.
        """
        seen: set[str] = set()
        while trial.id not in seen:
            seen.add(trial.id)
            start, _, parent = trial.whole
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


def prune(trial: TrialState, keep: Checkpoints, lent: Collection[str]) -> list[Saved]:
    """Make a trial forget the checkpoints that need not be kept; returns them.

    Kept: the last ones, one of whole steps among them, the ones of the best steps, and the one that
    its order started from, which a rank may still be reading.

    Args:
        lent: paths of those that are lent to other trials.
    """
    usable, partial = trial.usable(), trial.partial
    lapsed = [saved for saved in trial.checkpoints if saved.within and saved != partial]
    last = max(1, keep.keep_last - (partial is not None))
    if len(usable) <= last and not lapsed:
        return []

    def loss(saved: Saved) -> tuple[bool, float]:
        value = trial.steps[saved.step]
        return math.isnan(value), trial.metric.loss(value)  # NaN is the worst

    best = sorted(usable, key=loss)[: keep.keep_best]
    kept = {saved.path for saved in (*usable[-last:], *best)} | set(lent)
    if trial.order is not None and trial.order.start is not None:
        kept.add(trial.order.start.path)
    dropped = [saved for saved in (*usable, *lapsed) if saved.path not in kept]
    trial.checkpoints = [saved for saved in trial.checkpoints if saved not in dropped]
    return dropped
