"""The checkpoints of a sweep: which are kept, which are lent to other trials, which may go.

Under a quota go those first that only a sweep which is extended, or copied from, would miss: of
trials that are over, then what others keep beside the one that they go on from; the worst first.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hposvc.spec import Checkpoints
from hposvc.trial import TrialState
from trainables.checkpoints.checkpoint import Saved


@dataclass
class Shelf:
    """Part of a sweep's state: it changes by events only."""

    keep: Checkpoints
    trials: Mapping[str, TrialState]
    prized: Callable[[], Collection[str]] = field(default=lambda: (), compare=False)  # the best
    dropped: list[Saved] = field(default_factory=list)  # nobody needs them any more
    lent: dict[str, tuple[str, Saved]] = field(default_factory=dict)  # borrower: owner, checkpoint
    size: int = 0  # bytes of all that is kept
    largest: int = 0  # of a single one, so far
    _loose: set[str] = field(default_factory=set)  # all trials that may keep what nobody needs
    _spared: set[str] = field(default_factory=set)  # the prized ones, when that was last looked at

    @property
    def quota(self) -> int | None:
        """Bytes that may be kept; None: any number."""
        return self.keep.quota

    @property
    def over(self) -> bool:
        """Whether more is kept than the quota allows, since all of it is needed."""
        return self.quota is not None and self.size > self.quota

    def take(self, trial: TrialState, order: int, saved: Saved) -> None:
        """A checkpoint is there."""
        if trial.order is None or trial.order.id != order:
            self.dropped.append(saved)  # of a rank of a lost order that still works
            return
        trial.checkpoints.append(saved)
        self.count(saved)
        if saved.within or saved.step in trial.steps:  # no report of it is still to come
            self.tidy(trial)

    def count(self, saved: Saved) -> None:
        """One more is kept."""
        self.size += saved.size
        self.largest = max(self.largest, saved.size)

    def drop(self, checkpoints: Collection[Saved]) -> None:
        """Nobody needs these, which were kept."""
        self.dropped += checkpoints
        self.size -= sum(saved.size for saved in checkpoints)

    def tidy(self, trial: TrialState) -> None:
        """Let go of what neither this trial, nor one that copies it, needs, and of the quota."""
        self._prune(trial)
        self.shrink()

    def _prune(self, trial: TrialState) -> None:
        if trial.id in self.lent and trial.borrowed is None:
            owner, _ = self.lent.pop(trial.id)
            self._prune(self.trials[owner])
        self.drop(prune(trial, self.keep, self._lent()))
        self._loose.add(trial.id)

    def shrink(self) -> None:
        """Come back to the quota, as far as nobody needs what goes.

        Where that does not suffice, the next look is only at trials that changed since: while a
        quota can't be met, a report costs no look at all the others.
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
        """The checkpoints that no trial goes on from, and that are not the best of all."""
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
        """Keep the checkpoint that a trial copies while the trial may need it."""
        order = trial.order
        if order is None:
            return
        # Updates within a step are of the values that it had, and go on from nowhere else.
        obsolete = [saved for saved in trial.checkpoints if saved.within and saved != order.start]
        trial.checkpoints = [saved for saved in trial.checkpoints if saved not in obsolete]
        self.drop(obsolete)
        self._loose.add(trial.id)
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
            self.size -= order.start.size
        borrowers = [name for name, (_, saved) in self.lent.items() if saved == order.start]
        for each in (owner, *(self.trials[name] for name in borrowers)):
            if each.order is None:  # it waits, and has perhaps no other
                self.mend(each)

    def mend(self, trial: TrialState) -> None:
        """Where it would go on from a copied checkpoint that is gone: from what there is."""
        self._loose.add(trial.id)
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


def prize(trial: TrialState) -> Saved | None:
    """The checkpoint of a trial's value, or else its best; None: it has none of whole steps."""
    usable = trial.usable()
    selected = None if trial.selected is None else trial.checkpoint_at(trial.selected[0])
    return selected or min(usable, key=lambda saved: _loss(trial, saved), default=None)


def _needed(trial: TrialState) -> list[Saved]:
    """What a trial that is not over may go on from, or still reports of."""
    if trial.over:
        return []
    start = None if trial.order is None else trial.order.start
    unheard = [saved for saved in trial.checkpoints if saved.step not in trial.steps]
    return [saved for saved in (start, trial.newest[0], trial.whole[0], *unheard) if saved]


def _worst_first(idle: tuple[TrialState, Saved]) -> tuple[bool, float, int, bool]:
    trial, saved = idle
    return not trial.over, -trial.loss, trial.number, saved == prize(trial)


def _loss(trial: TrialState, saved: Saved) -> tuple[bool, float]:
    value = trial.steps[saved.step]
    return math.isnan(value), trial.metric.loss(value)  # NaN is the worst


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
    best = sorted(usable, key=lambda saved: _loss(trial, saved))[: keep.keep_best]
    kept = {saved.path for saved in (*usable[-last:], *best)} | set(lent)
    if trial.order is not None and trial.order.start is not None:
        kept.add(trial.order.start.path)
    dropped = [saved for saved in (*usable, *lapsed) if saved.path not in kept]
    trial.checkpoints = [saved for saved in trial.checkpoints if saved not in dropped]
    return dropped
