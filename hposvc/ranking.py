"""Which trial of a sweep is the best so far, at the cost of a logarithm a report."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from hposvc.trial import TrialState


@dataclass
class Ranking:
    """A heap of all losses that trials had.

    One that is not its trial's any more is passed over when it comes up.
    """

    trials: Mapping[str, TrialState] = field(repr=False)
    heap: list[tuple[float, int, str]] = field(default_factory=list)

    def update(self, trial: TrialState) -> str | None:
        """The best trial, now that this one's loss may be another; of equals the first proposed.

        None: no trial has a value.
        """
        if trial.loss < math.inf:
            heappush(self.heap, (trial.loss, trial.number, trial.id))
        while self.heap and self.heap[0][0] != self.trials[self.heap[0][2]].loss:
            heappop(self.heap)
        return self.heap[0][2] if self.heap else None
