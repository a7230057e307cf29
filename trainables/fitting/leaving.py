"""Whether a rank was told to end: asked of all ranks, so that they leave at the same update."""

import math
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from trainables.worker import Worker

ASKING_S = 2.0  # between two questions: clouds give 30 seconds and more


@dataclass
class Agreement:
    """Among the ranks of an order."""

    worker: Worker
    patience: int = 1  # updates until they ask again
    updates: int = 0  # since they asked
    asked_at: float = field(default_factory=time.monotonic)

    def reached(self) -> bool:
        """Whether all leave now; to be called by every rank after each update."""
        worker, given = self.worker, self.worker.notice.given
        if worker.world_size == 1:
            return given
        self.updates += 1
        if self.updates < self.patience:
            return False
        # To ask takes a reduction, and a GPU to finish what it is at. Rank 0's clock says when.
        now = time.monotonic()
        pace_s = (now - self.asked_at) / self.updates
        patience = max(1, min(math.floor(ASKING_S / max(pace_s, 1e-6)), 2**31))
        told = [int(given), patience if worker.rank == 0 else 0]
        answer = torch.tensor(told, device=worker.device)
        dist.all_reduce(answer, op=dist.ReduceOp.MAX)
        self.asked_at, self.updates, self.patience = now, 0, int(answer[1])
        return bool(answer[0])
