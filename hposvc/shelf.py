"""The checkpoints of a sweep: which are kept, which are lent to other trials, which may go."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hposvc.spec import Checkpoints
from hposvc.trial import TrialState
from trainables.checkpoint import Saved


@dataclass
class Shelf:
    """Part of a sweep's state: it changes by events only."""

    keep: Checkpoints
    trials: Mapping[str, TrialState]
    dropped: list[Saved] = field(default_factory=list)  # nobody needs them any more
    lent: dict[str, tuple[str, Saved]] = field(default_factory=dict)  # borrower: owner, checkpoint

    def tidy(self, trial: TrialState) -> None:
        """Let go of what neither this trial, nor one that copies it, needs."""
        if trial.id in self.lent and trial.borrowed is None:
            owner, _ = self.lent.pop(trial.id)
            self.tidy(self.trials[owner])
        lent = {saved.path for _, saved in self.lent.values()}
        self.dropped += trial.prune(self.keep.keep_last, self.keep.keep_best, lent)

    def lend(self, trial: TrialState) -> None:
        """Keep the checkpoint that a trial copies while the trial may need it."""
        if trial.order is not None and trial.order.parent and trial.order.start:
            self.lent[trial.id] = (trial.order.parent, trial.order.start)

    def discard(self, trial: TrialState) -> None:
        """What the trial's order started from is damaged: the next order takes an older one."""
        order = trial.order
        if order is None:
            return
        owner = self.trials[order.parent] if order.parent else trial
        if order.start in owner.checkpoints:
            owner.checkpoints.remove(order.start)
        if order.parent:
            trial.lives[-1] = replace(trial.lives[-1], start=owner.newest[0])
