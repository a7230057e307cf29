"""Agreement of all ranks on a condition that some of them see, looked for between updates."""

import math
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from trainables.worker import Worker


@dataclass
class RankPoll:
    """An exchange among the ranks of an order every few updates, whether a condition holds."""

    worker: Worker
    pause_s: float  # from one exchange to the next
    patience: int = 1  # updates from one exchange to the next
    updates: int = 0  # since the last exchange
    asked_at: float = field(default_factory=time.monotonic)

    def holds(self, here: bool) -> bool:
        """Return whether a condition holds on some rank; every rank calls this after each update.

        Args:
            here: whether it holds on this rank.
        """
        if self.worker.world_size == 1:
            return here
        self.updates += 1
        if self.updates < self.patience:
            return False
        # An exchange costs a reduction, and waits for a GPU's queue. Rank 0's clock sets the pace.
        now = time.monotonic()
        pace_s = (now - self.asked_at) / self.updates
        patience = max(1, min(math.floor(self.pause_s / max(pace_s, 1e-6)), 2**31))
        message = [int(here), patience if self.worker.rank == 0 else 0]
        answer = torch.tensor(message, device=self.worker.device)
        dist.all_reduce(answer, op=dist.ReduceOp.MAX)
        self.asked_at, self.updates, self.patience = now, 0, int(answer[1])
        return bool(answer[0])
