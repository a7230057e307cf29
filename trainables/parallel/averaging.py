"""Exchange of many tensors between ranks, in few messages."""

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

LARGEST = 64 * 2**20  # bytes of the tensors sent in one message, which are copied into one buffer


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all ranks; every rank passes the same list of tensors.

    torch's average_parameters would move the weights into new memory, and send them all in the
    finest of their formats.
    """
    ranks = dist.get_world_size()
    for tensor in tensors:
        if tensor.is_sparse:  # an embedding's gradient, whose rows differ between ranks
            dist.all_reduce(tensor)
            tensor.div_(ranks)
    dense = [tensor for tensor in tensors if not tensor.is_sparse]
    exchange(dense, lambda flat: dist.all_reduce(flat.div_(ranks)))


@torch.no_grad()
def exchange(tensors: Sequence[Tensor], collective: Callable[[Tensor], object]) -> None:
    """Call a collective with flat copies of the tensors, and copy its results back."""
    for group in _group_by_dtype(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in group])
        collective(flat)
        values = flat.split([tensor.numel() for tensor in group])
        for tensor, value in zip(group, values, strict=True):
            tensor.copy_(value.view_as(tensor))


def message_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes that averaging needs beside the tensors: the largest message, twice."""
    sizes = (sum(tensor.nbytes for tensor in group) for group in _group_by_dtype(tensors))
    return 2 * max(sizes, default=0)


def _group_by_dtype(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the tensors in groups of one format, in order, each small enough for one message."""
    open_groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        group = open_groups.setdefault(tensor.dtype, [])
        if group and sum(member.nbytes for member in group) + tensor.nbytes > LARGEST:
            yield group
            group = open_groups[tensor.dtype] = []
        group.append(tensor)
    yield from open_groups.values()
