"""What a history says, as a Gaussian process can take it in.

Axes: N trials with a result, P searched parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchers.fidelity import comparable
from searchers.gp.encoding import Index
from searchers.gp.kernels import Array
from searchers.searcher import Observation
from searchers.space import Params, Space


@dataclass(frozen=True)
class Evidence:
    """Trials with a comparable result, in the order of the history, and those without one yet."""

    params: Sequence[Params]
    loss_N: Array  # NaN: failed or diverged
    pending: Sequence[Params]

    @classmethod
    def of(cls, space: Space, history: Sequence[Observation]) -> "Evidence":
        scored = comparable(history, enough=len(space.searched) + 1)
        told = {one.observation.id for one in scored}
        return cls(
            [one.observation.params for one in scored],
            np.array([np.nan if one.loss is None else one.loss for one in scored]),
            [seen.params for seen in history if seen.state == "pending" and seen.id not in told],
        )

    @property
    def is_enough(self) -> bool:
        """Whether a model can say more than a quasi-random sequence."""
        return len(self.loss_N) >= 3 and int(np.isfinite(self.loss_N).sum()) >= 2

    def kept(self, most: int) -> "Evidence":
        """At most that many trials: the best half, and of the others the latest."""
        if len(self.loss_N) <= most:
            return self
        order_N = np.argsort(self.loss_N, kind="stable")  # NaN is last
        best, others = order_N[: most // 2], np.sort(order_N[most // 2 :])
        index = np.sort(np.append(best, others[-(most - most // 2) :]))
        return Evidence([self.params[i] for i in index], self.loss_N[index], self.pending)


def best_and_random(output_N: Array, most: int, rng: np.random.Generator) -> Index:
    """At most that many rows to fit on: the lowest half, and of the others a random choice."""
    if len(output_N) <= most:
        return np.arange(len(output_N))
    order_N = np.argsort(output_N, kind="stable")
    rest = rng.choice(order_N[most // 2 :], most - most // 2, replace=False)
    return np.append(order_N[: most // 2], rest)
