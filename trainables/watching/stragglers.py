"""Which rank the others wait for.

A rank's busy time is what it computes, without waiting: the wait for a slow rank makes all ranks'
updates equally long, so only busy times tell who is slow.
Source: Ananthanarayanan et al., Reining in the Outliers in Map-Reduce Clusters using Mantri
(OSDI 2010): a task is an outlier by the ratio of its time to the median task's, 1.5 and more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

BUSY = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True)
class Straggler:
    """The slowest rank; score: its busy time over the median rank's (1: none is slower)."""

    rank: int
    score: float

    @property
    def metrics(self) -> dict[str, float]:
        return {"perf/straggler": self.score, "perf/straggler_rank": self.rank}


def slowest(busy_s: Sequence[float]) -> Straggler:
    """The straggler among ranks, by each rank's busy seconds.

    Of two ranks the median is the mean, so their score stays below 2.
    """
    rank = max(range(len(busy_s)), key=busy_s.__getitem__)
    middle = median(busy_s)
    return Straggler(rank, busy_s[rank] / middle if middle > 0 else 1.0)


def busy(times: Mapping[str, float]) -> float:
    """This rank's busy seconds of an update, from the times that a Clock took."""
    return sum(times.get(part, 0.0) for part in BUSY)


def exchange(busy_s: float, device: torch.device) -> list[float]:
    """Every rank's busy seconds, by rank: one small collective, in which all ranks take part."""
    if not dist.is_initialized():
        return [busy_s]
    own = torch.tensor([busy_s], dtype=torch.float64, device=device)
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, own)
    return [float(each) for each in torch.cat(everyones).tolist()]
