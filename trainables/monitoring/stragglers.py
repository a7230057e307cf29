"""The straggler: the slowest rank, for which the others wait.

A rank's busy time is its computing time, without waiting: waiting for a slow rank makes the updates
of all ranks equally long, so only busy times show which rank is slow.
Source: Ananthanarayanan et al., Reining in the Outliers in Map-Reduce Clusters using Mantri
(OSDI 2010): a task is an outlier if the ratio of its time to the median task's is 1.5 or more.
"""

from collections.abc import Mapping, Sequence
from statistics import median

import torch
import torch.distributed as dist

BUSY = ("data", "forward", "backward", "optimizer")


def slowest(busy_s: Sequence[float]) -> dict[str, float]:
    """Return the metrics of the slowest rank, given each rank's busy seconds.

    Its score is its busy time over the median rank's (1: no rank is slower). With two ranks the
    median is the mean, so their score stays below 2.
    """
    rank = max(range(len(busy_s)), key=busy_s.__getitem__)
    median_s = median(busy_s)
    score = busy_s[rank] / median_s if median_s > 0 else 1.0
    return {"perf/straggler": score, "perf/straggler_rank": rank}


def busy_seconds(times: Mapping[str, float]) -> float:
    """Return this rank's busy seconds in an update, from the times of a Clock."""
    return sum(times.get(part, 0.0) for part in BUSY)


def gather_busy_seconds(busy_s: float, device: torch.device) -> list[float]:
    """Return every rank's busy seconds, by rank; one small collective of all ranks."""
    mine = torch.tensor([busy_s], dtype=torch.float64, device=device)
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return [float(seconds) for seconds in torch.cat(gathered).tolist()]
