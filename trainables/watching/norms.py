"""Squared norms of many tensors at once, sharded ones whole, without waiting for the device.

Axes: P tensors, K kinds of values of each.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement


def squared(tensors: Iterable[Tensor]) -> Tensor:
    """The squared norm of this rank's part of each tensor, in double precision; shape (P,)."""
    parts = [own(tensor) for tensor in tensors]
    by_kind: dict[tuple[torch.dtype, torch.device], list[int]] = defaultdict(list)
    for place, part in enumerate(parts):
        by_kind[part.dtype, part.device].append(place)
    norms = [torch.empty(0)] * len(parts)
    for (dtype, _), places in by_kind.items():
        # In float16 a norm of 65,505 is infinite; in float32 its square may be.
        wide = torch.promote_types(dtype, torch.float32).to_real()
        found = torch._foreach_norm([parts[at] for at in places], 2, dtype=wide)
        for at, norm in zip(places, found, strict=True):
            norms[at] = norm.to(parts[0].device)
    return torch.stack(norms).double().square() if norms else torch.zeros(0).double()


def over_ranks(squares_KP: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Those of whole tensors from those of their parts: one reduction a mesh and its dimension.

    All ranks take part where tensors are DTensors; what is no DTensor stays as it is.
    """
    columns = list(squares_KP.unbind(1))
    by_mesh: dict[DeviceMesh, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        if is_dtensor(tensor):
            columns[place] = columns[place] / _copies(tensor)
            by_mesh[tensor.device_mesh].append(place)
    for mesh, places in by_mesh.items():
        # No index from a list: it would be copied to the device, and waited for.
        part_PK = torch.stack([columns[at] for at in places])
        for group in mesh.get_all_groups():
            dist.all_reduce(part_PK, group=group)
        for at, column in zip(places, part_PK.unbind(0), strict=True):
            columns[at] = column
    return torch.stack(columns, 1) if columns else squares_KP


def is_dtensor(tensor: Tensor) -> TypeGuard["DTensor"]:
    """Whether it is spread over ranks; whoever made it has loaded the module."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def own(tensor: Tensor) -> Tensor:
    """The values that this rank holds; of partial sums, the sums."""
    tensor = tensor.detach()
    if is_dtensor(tensor):
        return tensor.redistribute(placements=_summed(tensor)).to_local()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def _summed(tensor: "DTensor") -> list["Placement"]:
    from torch.distributed.tensor import Replicate  # loaded: there is a DTensor

    return [Replicate() if each.is_partial() else each for each in tensor.placements]


def _copies(tensor: "DTensor") -> int:
    """How many ranks hold the same values."""
    sizes = zip(tensor.placements, tensor.device_mesh.shape, strict=True)
    return prod(size for placement, size in sizes if not placement.is_shard())
