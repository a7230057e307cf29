"""The trials of a history as rows of a Gaussian process.

Axes: T trials with a result, R rows (a trial has one at each step at which trials are judged), C
columns of context: the step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchers.gp.encoding import Mask
from searchers.gp.fidelity import MultiFidelityRows
from searchers.gp.kernels import Array, Index
from searchers.searcher import REPEAT_OF, Observation
from searchers.space import Params

MAX_REPEATS = 30  # of a trial, once there are more rows than a model is given


def folded(history: Sequence[Observation]) -> Sequence[Observation]:
    """Return a history in which the results of trials that repeat others are theirs.

    A repeat that still runs stays a trial of its own, as its last report is at a step of its own.
    """
    if not any(REPEAT_OF in seen.note for seen in history):
        return history
    repeats = {seen.id: seen.repeats for seen in history if REPEAT_OF not in seen.note}
    others: list[Observation] = []
    for seen in history:
        original = seen.note.get(REPEAT_OF)
        loss = seen.loss if seen.state == "done" else None
        if isinstance(original, str) and original in repeats and loss is not None:
            result = seen.curve[-1] if seen.curve else (math.inf, loss)
            repeats[original] = (*repeats[original], result, *seen.repeats)
        else:
            others.append(seen)
    # Only what changes is copied: to copy 5,000 trials takes 35 ms.
    return [
        replace(seen, repeats=repeats[seen.id])
        if repeats.get(seen.id, seen.repeats) != seen.repeats
        else seen
        for seen in others
    ]


@dataclass(frozen=True)
class Evidence:
    """Trials with a result, in the order of the history, those that failed, those still running."""

    params: Sequence[Params]  # of the T trials with a result
    trial_R: Index  # index of the row's trial among the T
    loss_R: Array
    context_RC: Array  # 0: the highest step; no column if all are
    failed: Sequence[Params]
    pending: Sequence[Params]

    @classmethod
    def of(cls, history: Sequence[Observation]) -> "Evidence":
        """Read a history.

        Trials that failed by no fault of their own say nothing, and are left out.
        """
        history = folded(history)
        rows = MultiFidelityRows.of(history)
        has_loss_R = np.isfinite(rows.loss_R)
        place_T, trial_R = np.unique(rows.trial_R[has_loss_R], return_inverse=True)
        context_RC = rows.column_R[has_loss_R][:, None]
        return cls(
            [history[index].params for index in place_T],
            trial_R,
            rows.loss_R[has_loss_R],
            context_RC[:, context_RC.any(axis=0)],
            [history[index].params for index in rows.trial_R[~has_loss_R]],
            [seen.params for seen in history if seen.state == "pending"],
        )

    @property
    def first_R(self) -> Mask:
        """Whether each row is the first of its trial at its step; the others are repeats."""
        place_R = np.column_stack([self.trial_R, self.context_RC])
        first_R: Mask = np.zeros(len(place_R), dtype=np.bool_)
        first_R[np.unique(place_R, axis=0, return_index=True)[1]] = True
        return first_R

    @property
    def ended(self) -> int:
        """The number of trials with a result or a failure."""
        return len(self.params) + len(self.failed)

    @property
    def is_enough(self) -> bool:
        """Whether a model can say more than a quasi-random sequence."""
        return len(self.params) >= 2 and self.ended >= 3

    def bounded(self, limit: int) -> "Evidence":
        """Return at most `limit` rows, and of failed and pending trials the latest.

        The trials that went furthest with the lowest losses get half of the rows, the latest others
        the rest. Of the repeats of a trial the latest MAX_REPEATS count: more would take the room.
        """
        failed, pending = self.failed[-limit:], self.pending[-limit:]
        if len(self.loss_R) <= limit:
            return replace(self, failed=failed, pending=pending)
        return replace(self._with_few_repeats(), failed=failed, pending=pending)._best(limit)

    def _with_few_repeats(self) -> "Evidence":
        last_T = np.cumsum(np.bincount(self.trial_R)) - 1  # rows of a trial are adjacent
        is_late_R = last_T[self.trial_R] - np.arange(len(self.trial_R)) < MAX_REPEATS
        kept_R = self.first_R | is_late_R
        return replace(
            self,
            trial_R=self.trial_R[kept_R],
            loss_R=self.loss_R[kept_R],
            context_RC=self.context_RC[kept_R],
        )

    def _best(self, limit: int) -> "Evidence":
        trials = len(self.params)
        rows_T = np.bincount(self.trial_R, minlength=trials)
        order_R = np.lexsort((self.loss_R, np.abs(self.context_RC).sum(axis=1)))
        order_T = np.argsort(np.unique(self.trial_R[order_R], return_index=True)[1])
        best_T = order_T[np.cumsum(rows_T[order_T]) <= limit // 2]
        latest_T = np.setdiff1d(np.arange(trials), best_T)[::-1]
        room = limit - int(rows_T[best_T].sum())
        kept_T = np.union1d(best_T, latest_T[np.cumsum(rows_T[latest_T]) <= room])
        kept_R = np.isin(self.trial_R, kept_T)
        return Evidence(
            [self.params[trial] for trial in kept_T],
            np.searchsorted(kept_T, self.trial_R[kept_R]),
            self.loss_R[kept_R],
            self.context_RC[kept_R],
            self.failed,
            self.pending,
        )
