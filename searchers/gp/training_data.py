"""The trials of a history as rows of a Gaussian process.

Axes: T trials with a result, R rows (a trial has one at each step at which trials are judged), C
columns of context: the step, and whether the trial was an earlier sweep's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from searchers.gp.encoding import Mask
from searchers.gp.fidelity import MultiFidelityRows
from searchers.gp.kernels import Array, Index, squared_distances
from searchers.searcher import Observation
from searchers.space import Params


@dataclass(frozen=True)
class Evidence:
    """Trials with a result, in the order of the history, those that failed, those still running."""

    params: Sequence[Params]  # of the T trials with a result
    trial_R: Index  # index of the row's trial among the T
    loss_R: Array
    context_RC: Array  # 0: this sweep, highest step; only columns that are not all 0
    earlier_R: Mask  # whether the trial was an earlier sweep's
    failed: Sequence[Params]
    pending: Sequence[Params]

    @classmethod
    def of(cls, history: Sequence[Observation], earlier: Sequence[Observation] = ()) -> "Evidence":
        """Read a history, and the trials of earlier sweeps.

        Trials that failed by no fault of their own say nothing, and are left out.
        """
        trials = [*earlier, *history]
        rows = MultiFidelityRows.of(trials)
        has_loss_R = np.isfinite(rows.loss_R)
        place_T, trial_R = np.unique(rows.trial_R[has_loss_R], return_inverse=True)
        earlier_R = rows.trial_R[has_loss_R] < len(earlier)
        context_RC = np.stack([rows.column_R[has_loss_R], earlier_R], axis=1)
        return cls(
            [trials[index].params for index in place_T],
            trial_R,
            rows.loss_R[has_loss_R],
            context_RC[:, context_RC.any(axis=0)],
            earlier_R,
            [trials[index].params for index in rows.trial_R[~has_loss_R]],
            [seen.params for seen in history if seen.state == "pending"],
        )

    @property
    def ended(self) -> int:
        """The number of trials with a result or a failure."""
        return len(self.params) + len(self.failed)

    @property
    def is_enough(self) -> bool:
        """Whether a model can say more than a quasi-random sequence."""
        return len(self.params) >= 2 and self.ended >= 3

    def with_levels_aligned(self, unit_NP: Array) -> "Evidence":
        """Return the evidence with earlier sweeps' losses moved to this sweep's level.

        A warp of both must not mix two levels. The level is the median difference between a trial
        of this sweep and the nearest earlier one, at the last step that both sweeps judged, or at
        the closest steps if they share none. While this sweep has no result, the level is unknown
        and taken to be the same.

        Args:
            unit_NP: unit positions of the trials; the T with a result come first.
        """
        here_R = ~self.earlier_R
        if here_R.all() or not here_R.any():
            return self
        step_R = self.context_RC[:, :-1].sum(axis=1)  # the last column is the origin
        unit_RP = unit_NP[self.trial_R]
        gap_HE = np.abs(step_R[here_R][:, None] - step_R[self.earlier_R])
        closest_H = gap_HE.min(axis=1)
        distance_HE = squared_distances(unit_RP[here_R], unit_RP[self.earlier_R])
        nearest_H = np.where(gap_HE > closest_H[:, None], np.inf, distance_HE).argmin(axis=1)
        excess_H = self.loss_R[here_R] - self.loss_R[self.earlier_R][nearest_H]
        comparable_H = np.flatnonzero(closest_H == closest_H.min())
        trial_H = self.trial_R[here_R][comparable_H]
        last_H = comparable_H[np.append(trial_H[1:] != trial_H[:-1], True)]
        shift = float(np.median(excess_H[last_H]))
        return replace(self, loss_R=self.loss_R + np.where(self.earlier_R, shift, 0.0))

    def bounded(self, limit: int) -> "Evidence":
        """Return at most `limit` rows, and of failed and pending trials the latest.

        The trials that went furthest with the lowest losses get half of the rows, the latest others
        the rest.
        """
        failed, pending = self.failed[-limit:], self.pending[-limit:]
        trials = len(self.params)
        rows_T = np.bincount(self.trial_R, minlength=trials)
        if rows_T.sum() <= limit:
            return replace(self, failed=failed, pending=pending)
        last_T = np.cumsum(rows_T) - 1  # the rows of a trial are adjacent, its last step at the end
        distance_T = np.abs(self.context_RC[last_T]).sum(axis=1)
        order_T = np.lexsort((self.loss_R[last_T], distance_T))
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
            self.earlier_R[kept_R],
            failed,
            pending,
        )
