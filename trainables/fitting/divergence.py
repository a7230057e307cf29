"""When training leaves the rails: gradients that are not finite, losses that jump. Without torch.

An update is bad if its loss or its gradient is not finite, or if its loss stands far above what
the last updates had: more than SPIKE standard deviations above their exponential mean. Source of
going back and skipping what was bad: Chowdhery et al., PaLM (2022), §5.1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainables.worker import Diverged

Policy = Literal["stop", "skip", "rollback"]
Verdict = Literal["go", "skip", "rollback"]

SPIKE = 10.0  # standard deviations
MEMORY = 0.98  # weight of the past in mean and variance: some 50 updates
SETTLED = 50  # updates before a loss can be a spike
MOST_SKIPPED = 10  # in a row
MOST_ROLLBACKS = 3  # of an order
SLOWER = 0.5  # factor on the learning rate after each way back


class RollBack(Exception):
    """Training is to go on from the last checkpoint."""


@dataclass
class Guard:
    """Judges each update of an order by its loss and its gradient's norm."""

    policy: Policy
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0
    skipped: int = 0  # of the order
    in_a_row: int = 0
    rollbacks: int = 0

    def judge(self, loss: float, norm: float) -> Verdict:
        """What becomes of an update; a good one is remembered.

        Args:
            norm: of the whole gradient; 0 where the gradient is judged by somebody else.

        Raises:
            Diverged: skipping or going back has been of no use.
        """
        if math.isfinite(norm) and math.isfinite(loss) and not self._is_spike(loss):
            self._remember(loss)
            return "go"
        found = f"loss {loss:g}, gradient norm {norm:g}"
        if self.policy == "rollback":
            if self.rollbacks == MOST_ROLLBACKS:
                raise Diverged(f"{found} after {MOST_ROLLBACKS} returns to a checkpoint")
            self.rollbacks += 1
            self.in_a_row = self.seen = 0
            return "rollback"
        self.skipped += 1
        self.in_a_row += 1
        if self.in_a_row > MOST_SKIPPED:
            raise Diverged(f"{found} after {MOST_SKIPPED} skipped updates in a row")
        return "skip"

    def state_dict(self) -> dict[str, float]:
        """What it remembers of losses; what it has done counts for an order."""
        return {"mean": self.mean, "variance": self.variance, "seen": self.seen}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Remember what another one did."""
        self.mean, self.variance = state["mean"], state["variance"]
        self.seen = int(state["seen"])

    def _is_spike(self, loss: float) -> bool:
        far = SPIKE * math.sqrt(self.variance)
        return self.seen >= SETTLED and loss > self.mean + max(far, abs(self.mean))

    def _remember(self, loss: float) -> None:
        weight = max(1 - MEMORY, 1 / (self.seen + 1))  # a plain mean at first
        off = loss - self.mean
        self.mean += weight * off
        self.variance = (1 - weight) * (self.variance + weight * off**2)
        self.seen += 1
        self.in_a_row = 0
