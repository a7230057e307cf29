"""Detection of diverging training: gradients that are not finite, loss spikes. Without torch.

An update is bad if its loss or its gradient is not finite, or if its loss is a spike: more than
SPIKE standard deviations above the exponential mean of the last updates' losses. Source of rolling
back and skipping bad updates: Chowdhery et al., PaLM (2022), §5.1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainables.worker import Diverged

Policy = Literal["stop", "skip", "rollback"]
UpdateAction = Literal["go", "skip", "rollback"]

SPIKE = 10.0  # standard deviations
MEMORY = 0.98  # weight of the past in mean and variance: some 50 updates
SETTLED = 50  # updates before a loss can be a spike
MOST_SKIPPED = 10  # in a row
MOST_ROLLBACKS = 3  # of an order
SLOWER = 0.5  # factor on the learning rate after each rollback


class Rollback(Exception):
    """Raised to continue training from the last checkpoint."""


@dataclass
class LossSpikeDetector:
    """A judge of each update of an order by its loss and its gradient's norm."""

    policy: Policy
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0
    skipped: int = 0  # of the order
    in_a_row: int = 0
    rollbacks: int = 0

    def judge(self, loss: float, norm: float) -> UpdateAction:
        """Return whether to make an update, skip it or roll back; remember the loss of a good one.

        Args:
            norm: of the complete gradient; 0 where the loss scaler judges the gradient.

        Raises:
            Diverged: skipping or rolling back has not helped.
        """
        margin = max(SPIKE * math.sqrt(self.variance), abs(self.mean))
        is_spike = self.seen >= SETTLED and loss > self.mean + margin
        if math.isfinite(norm) and math.isfinite(loss) and not is_spike:
            self._update_statistics(loss)
            return "go"
        values = f"loss {loss:g}, gradient norm {norm:g}"
        if self.policy == "rollback":
            if self.rollbacks == MOST_ROLLBACKS:
                raise Diverged(f"{values} after {MOST_ROLLBACKS} returns to a checkpoint")
            self.rollbacks += 1
            self.in_a_row = self.seen = 0
            return "rollback"
        self.skipped += 1
        self.in_a_row += 1
        if self.in_a_row > MOST_SKIPPED:
            raise Diverged(f"{values} after {MOST_SKIPPED} skipped updates in a row")
        return "skip"

    def state_dict(self) -> dict[str, float]:
        """Return the statistics of past losses; counts of actions belong to one order only."""
        return {"mean": self.mean, "variance": self.variance, "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Take over the statistics of another detector."""
        self.mean, self.variance = state["mean"], state["variance"]
        self.seen = int(state["seen"])

    def _update_statistics(self, loss: float) -> None:
        weight = max(1 - MEMORY, 1 / (self.seen + 1))  # a plain mean at first
        deviation = loss - self.mean
        self.mean += weight * deviation
        self.variance = (1 - weight) * (self.variance + weight * deviation**2)
        self.seen += 1
        self.in_a_row = 0
