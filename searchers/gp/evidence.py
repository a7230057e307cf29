"""What a history says, as a Gaussian process can take it in.

Axes: T trials with a result, R rows (a trial has one at each step at which trials are judged),
C columns of context: the step, and whether the trial was an earlier sweep's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchers.gp.encoding import Mask
from searchers.gp.fidelity import Staged
from searchers.gp.kernels import Array, Index, squared_distances
from searchers.searcher import Observation
from searchers.space import Params


@dataclass(frozen=True)
class Evidence:
    """Trials with a result, in the order of the history, those that failed, those still running."""

    params: Sequence[Params]  # of the T trials with a result
    trial_R: Index  # the place of the row's trial among them
    loss_R: Array
    context_RC: Array  # 0 is here and now; only what differs between rows, or from there
    earlier_R: Mask  # whether the trial was an earlier sweep's
    failed: Sequence[Params]
    pending: Sequence[Params]

    @classmethod
    def of(cls, history: Sequence[Observation], earlier: Sequence[Observation] = ()) -> "Evidence":
        """Of a history, and of the trials of earlier sweeps.

        Trials that failed by no fault of their own say nothing, and are left out.
        """
        every = [*earlier, *history]
        staged = Staged.of(every)
        known_R = np.isfinite(staged.loss_R)
        place_T, trial_R = np.unique(staged.trial_R[known_R], return_inverse=True)
        earlier_R = staged.trial_R[known_R] < len(earlier)
        context_RC = np.stack([staged.column_R[known_R], earlier_R], axis=1)
        return cls(
            [every[place].params for place in place_T],
            trial_R,
            staged.loss_R[known_R],
            context_RC[:, context_RC.any(axis=0)],
            earlier_R,
            [every[place].params for place in staged.trial_R[~known_R]],
            [seen.params for seen in history if seen.state == "pending"],
        )

    @property
    def is_enough(self) -> bool:
        """Whether a model can say more than a quasi-random sequence."""
        return len(self.params) >= 2 and len(self.params) + len(self.failed) >= 3

    def levelled(self, unit_NP: Array) -> "Evidence":
        """Earlier sweeps' losses moved to this sweep's level, which a warp of both must not mix.

        The level is the median difference between a trial of this sweep and the nearest earlier
        one; while this sweep has no result, it is unknown and taken to be the same.

        Args:
            unit_NP: where the trials are; the T with a result come first.
        """
        earlier_T = np.zeros(len(self.params), dtype=np.bool_)
        earlier_T[self.trial_R[self.earlier_R]] = True
        if earlier_T.all() or not earlier_T.any():
            return self
        last_T = np.append(self.trial_R[1:] != self.trial_R[:-1], True)
        loss_T = self.loss_R[last_T]
        unit_TP = unit_NP[: len(self.params)]
        nearest_T = squared_distances(unit_TP[~earlier_T], unit_TP[earlier_T]).argmin(axis=1)
        shift = float(np.median(loss_T[~earlier_T] - loss_T[earlier_T][nearest_T]))
        return replace(self, loss_R=self.loss_R + np.where(self.earlier_R, shift, 0.0))

    def kept(self, most: int) -> "Evidence":
        """At most that many rows, and of failed and pending trials the latest.

        The trials that went furthest with the lowest losses have half of the rows, the latest
        others the rest.
        """
        failed, pending = self.failed[-most:], self.pending[-most:]
        trials = len(self.params)
        rows_T = np.bincount(self.trial_R, minlength=trials)
        if rows_T.sum() <= most:
            return replace(self, failed=failed, pending=pending)
        last_T = np.cumsum(rows_T) - 1  # the rows of a trial stand together, the last step last
        distance_T = np.abs(self.context_RC[last_T]).sum(axis=1)
        order_T = np.lexsort((self.loss_R[last_T], distance_T))
        best_T = order_T[np.cumsum(rows_T[order_T]) <= most // 2]
        latest_T = np.setdiff1d(np.arange(trials), best_T)[::-1]
        room = most - int(rows_T[best_T].sum())
        kept_T = np.union1d(best_T, latest_T[np.cumsum(rows_T[latest_T]) <= room])
        kept_R = np.isin(self.trial_R, kept_T)
        return Evidence(
            [self.params[trial] for trial in kept_T],
            np.searchsorted(kept_T, self.trial_R[kept_R]),
            self.loss_R[kept_R],
            self.context_RC[kept_R],
            self.earlier_R[kept_R],
            failed,
            pending,
        )
