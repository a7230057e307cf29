"""The mean over ranks of many tensors, in few messages."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

LARGEST = 64 * 2**20  # bytes of tensors that travel together, of which there is a copy meanwhile


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> None:
    """Put the mean over all ranks into each tensor; every rank has the same ones.

    torch's average_parameters would give each weight other memory, in the finest format of all.
    """
    ranks = dist.get_world_size()
    for tensor in tensors:
        if tensor.is_sparse:  # an embedding's gradient: of rows of its own on each rank
            dist.all_reduce(tensor)
            tensor.div_(ranks)
    for group in _groups([tensor for tensor in tensors if not tensor.is_sparse]):
        flat = torch.cat([tensor.reshape(-1) for tensor in group]) / ranks
        dist.all_reduce(flat)
        means = flat.split([tensor.numel() for tensor in group])
        for tensor, mean in zip(group, means, strict=True):
            tensor.copy_(mean.view_as(tensor))


def _groups(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one format, in order, as many as may travel together."""
    open_: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        group = open_.setdefault(tensor.dtype, [])
        if group and sum(each.nbytes for each in group) + tensor.nbytes > LARGEST:
            yield group
            group = open_[tensor.dtype] = []
        group.append(tensor)
    yield from open_.values()
