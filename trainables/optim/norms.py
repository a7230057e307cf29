"""Norms and sums of complete tensors, whose parts may lie on several ranks.

Each rank measures its parts of DTensors, and one reduction for each mesh adds up the measures of
all tensors: a step costs one or two collectives, not two for each layer. A `part` is this rank's
share of a tensor, a plain tensor; a `whole` is the tensor itself, plain or DTensor. Nothing here
waits for the device.

Axes: P tensors.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.nn import Parameter

Splits = Callable[[Placement], bool]  # whether a placement splits a measure over its ranks


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sharded_gradient(weight: Parameter) -> Tensor:
    """Return the gradient of a weight, which must exist, sharded like the weight."""
    gradient = weight.grad
    if gradient is None:
        raise ValueError("a weight without gradient was asked for one; leave it out")
    if not (isinstance(gradient, DTensor) and isinstance(weight, DTensor)):
        return gradient
    if gradient.placements != weight.placements:
        gradient = gradient.redistribute(placements=weight.placements)
        weight.grad = gradient
    return gradient


def add_up_partials(tensor: Tensor) -> Tensor:
    """Return the tensor with partial placements added up; parts of these would have no norm."""
    if isinstance(tensor, DTensor) and any(place.is_partial() for place in tensor.placements):
        complete = [Replicate() if place.is_partial() else place for place in tensor.placements]
        return tensor.redistribute(placements=complete)
    return tensor


def tensor_norms(parts: Sequence[Tensor], wholes: Sequence[Tensor]) -> list[Tensor]:
    """Return the Euclidean norm of each complete tensor, 0-d, in float32 or finer.

    Args:
        parts: this rank's part of each tensor.
        wholes: tensors that are sharded like these.
    """
    norms = _norms(parts)
    sharded = [at for at, tensor in enumerate(wholes) if isinstance(tensor, DTensor)]
    squares_of_parts = list(_stack_squares([norms[at] for at in sharded]).unbind())
    totals = sums(squares_of_parts, [wholes[at] for at in sharded], is_sharded)
    for at, square in zip(sharded, totals, strict=True):
        norms[at] = square.sqrt().to(norms[at])
    return norms


def squared_norms(parts: Sequence[Tensor]) -> Tensor:
    """Return squares_P: squared norms of parts of any format, in double precision, on one device.

    `sums` turns these into the squared norms of the complete tensors.
    """
    return _stack_squares(_norms(parts))


def trust_ratios(parts: Sequence[Tensor], weights: Sequence[Tensor], rate: float) -> list[Tensor]:
    """Return rate |weight| / |part| of each layer, or 1 where either norm is 0 and says nothing."""
    norms = tensor_norms([*map(local_part, weights), *parts], [*weights, *weights])
    weight_norms, part_norms = torch.stack(norms[: len(parts)]), torch.stack(norms[len(parts) :])
    usable = (weight_norms > 0) & (part_norms > 0)
    return list(torch.where(usable, rate * weight_norms / part_norms, 1.0).unbind())


def sums(measures: Sequence[Tensor], wholes: Sequence[Tensor], splits: Splits) -> list[Tensor]:
    """Add up each rank's measures of its parts; shapes stay.

    Args:
        measures: tensors of one dtype.
        splits: measures are added up over the ranks of placements for which this returns true.
    """
    added = list(measures)
    for (mesh, placements), indices in _group_by_mesh(wholes, splits).items():
        flat = torch.cat([measures[index].reshape(-1) for index in indices])
        # Offloaded parts are on the CPU, where the mesh's ranks may have no process group.
        partial = DTensor.from_local(flat.to(mesh.device_type), mesh, placements, run_check=False)
        total = partial.full_tensor().to(flat.device)
        pieces = total.split([measures[index].numel() for index in indices])
        for index, piece in zip(indices, pieces, strict=True):
            added[index] = piece.view(measures[index].shape)
    return added


def is_sharded(placement: Placement) -> bool:
    """Return whether a placement shards a tensor at all."""
    return not placement.is_replicate()


def shards_rows(placement: Placement) -> bool:
    """Return whether a placement shards the first dimension."""
    return getattr(placement, "dim", None) == 0


def shards_within_rows(placement: Placement) -> bool:
    """Return whether a placement shards another dimension than the first."""
    return is_sharded(placement) and not shards_rows(placement)


def _group_by_mesh(
    wholes: Sequence[Tensor], splits: Splits
) -> dict[tuple[DeviceMesh, tuple[Placement, ...]], list[int]]:
    """Return the tensors to be added up, by the mesh and the placements to use."""
    indices: dict[tuple[DeviceMesh, tuple[Placement, ...]], list[int]] = {}
    for index, tensor in enumerate(wholes):
        if isinstance(tensor, DTensor) and any(map(splits, tensor.placements)):
            partial = tuple(
                Partial() if splits(placement) else Replicate() for placement in tensor.placements
            )
            indices.setdefault((tensor.device_mesh, partial), []).append(index)
    return indices


def _norms(parts: Sequence[Tensor]) -> list[Tensor]:
    """Return norms of plain tensors; one call for each kind takes a few kernels on a GPU."""
    parts = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in parts]
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, tensor in enumerate(parts):
        kinds.setdefault((tensor.device, tensor.dtype), []).append(index)
    norms = list(parts)
    for (_, dtype), indices in kinds.items():
        fine = torch.promote_types(dtype, torch.float32)
        measured = torch._foreach_norm([parts[index] for index in indices], 2, fine)
        for index, norm in zip(indices, measured, strict=True):
            norms[index] = norm
    return norms


def _stack_squares(norms: Sequence[Tensor]) -> Tensor:
    if not norms:
        return torch.zeros(0, dtype=torch.float64)
    return torch.stack([norm.to(norms[0].device) for norm in norms]).double().square()
