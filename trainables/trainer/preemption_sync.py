"""Agreement of all ranks on the update after which they stop, once a rank was told to end."""

import math
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from trainables.worker import Worker

ASKING_S = 2.0  # between two reductions: clouds give 30 seconds and more


@dataclass
class PreemptionSync:
    """The exchange of preemption notices among the ranks of an order."""

    worker: Worker
    patience: int = 1  # updates from one exchange to the next
    updates: int = 0  # since the last exchange
    asked_at: float = field(default_factory=time.monotonic)

    def should_stop(self) -> bool:
        """Return whether all ranks stop now; to be called by every rank after each update."""
        worker, preempted = self.worker, self.worker.notice.given
        if worker.world_size == 1:
            return preempted
        self.updates += 1
        if self.updates < self.patience:
            return False
        # An exchange costs a reduction, and waits for a GPU's queue. Rank 0's clock sets the pace.
        now = time.monotonic()
        pace_s = (now - self.asked_at) / self.updates
        patience = max(1, min(math.floor(ASKING_S / max(pace_s, 1e-6)), 2**31))
        message = [int(preempted), patience if worker.rank == 0 else 0]
        answer = torch.tensor(message, device=worker.device)
        dist.all_reduce(answer, op=dist.ReduceOp.MAX)
        self.asked_at, self.updates, self.patience = now, 0, int(answer[1])
        return bool(answer[0])
