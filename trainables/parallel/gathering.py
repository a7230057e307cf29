"""Work between collectives that may fail on one rank: then it fails on all, and no rank waits."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from trainables.errors import picklable

Result = TypeVar("Result")


def gather_results(
    work: Callable[[], Result], group: dist.ProcessGroup | None = None
) -> list[Result]:
    """Run `work` on each rank of the group, and return all results, in the order of ranks.

    Args:
        work: without collectives; results are pickled.
        group: None: the default group.

    Raises:
        Exception: this rank's own, or a copy of that of the first failed rank.
    """
    results: list[Any] = [None] * dist.get_world_size(group)
    try:
        result = work()
    except Exception as error:
        dist.all_gather_object(results, (None, picklable(error)), group)
        raise
    dist.all_gather_object(results, (result, None), group)
    for rank, (_, failure) in enumerate(results):
        if failure is not None:
            failure.add_note(f"(raised on rank {rank})")
            raise failure
    return [value for value, _ in results]
