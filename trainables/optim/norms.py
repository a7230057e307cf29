"""Norms and sums of whole tensors, wherever their parts are.

A DTensor is measured where its parts lie, and one reduction a mesh adds up the measures of all
tensors: a step costs a collective or two, and not two a layer. A part is what this rank holds
of a tensor, a plain tensor; a whole is the tensor itself, plain or DTensor. Nothing here waits for
the device.

Axes: P tensors.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.nn import Parameter

Splits = Callable[[Placement], bool]  # whether a placement splits a measure over its ranks


def part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def settle(weight: Parameter) -> Tensor:
    """The gradient of a weight, dealt out as the weight is; it has to be there."""
    gradient = weight.grad
    if gradient is None:
        raise ValueError("a weight without gradient was asked for one; leave it out")
    if not (isinstance(gradient, DTensor) and isinstance(weight, DTensor)):
        return gradient
    if gradient.placements != weight.placements:
        gradient = gradient.redistribute(placements=weight.placements)
        weight.grad = gradient
    return gradient


def summed(tensor: Tensor) -> Tensor:
    """Without placements that are still to be added up, whose parts have no norm yet."""
    if isinstance(tensor, DTensor) and any(each.is_partial() for each in tensor.placements):
        done = [Replicate() if each.is_partial() else each for each in tensor.placements]
        return tensor.redistribute(placements=done)
    return tensor


def lengths(parts: Sequence[Tensor], wholes: Sequence[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each whole tensor, 0-d, in float32 or finer.

    Args:
        parts: what this rank holds of each.
        wholes: tensors that are dealt out as these are.
    """
    found = _measure(parts)
    dealt = [at for at, whole in enumerate(wholes) if isinstance(whole, DTensor)]
    own = list(_squared([found[at] for at in dealt]).unbind())
    whole = sums(own, [wholes[at] for at in dealt], anywhere)
    for at, square in zip(dealt, whole, strict=True):
        found[at] = square.sqrt().to(found[at])
    return found


def squares(parts: Sequence[Tensor]) -> Tensor:
    """squares_P of the norms of parts of any format, in double precision, on the first's device.

    `sums` makes those of wholes of them.
    """
    return _squared(_measure(parts))


def trust(parts: Sequence[Tensor], weights: Sequence[Tensor], rate: float) -> list[Tensor]:
    """rate |weight| / |part| of each layer; 1 where either is 0, since a norm then says nothing."""
    both = lengths([*map(part, weights), *parts], [*weights, *weights])
    long, steep = torch.stack(both[: len(parts)]), torch.stack(both[len(parts) :])
    usable = (long > 0) & (steep > 0)
    return list(torch.where(usable, rate * long / steep, 1.0).unbind())


def sums(measures: Sequence[Tensor], wholes: Sequence[Tensor], splits: Splits) -> list[Tensor]:
    """Add up what each rank measured on its part of each tensor; shapes stay.

    Args:
        measures: of one dtype.
        splits: a measure is added up over the ranks of the placements for which this is true.
    """
    added = list(measures)
    for (mesh, placements), ats in _by_mesh(wholes, splits).items():
        flat = torch.cat([measures[at].reshape(-1) for at in ats])
        # Offloaded parts are on the CPU, where the mesh's ranks may have no way to each other.
        spread = DTensor.from_local(flat.to(mesh.device_type), mesh, placements, run_check=False)
        total = spread.full_tensor().to(flat.device)
        pieces = total.split([measures[at].numel() for at in ats])
        for at, piece in zip(ats, pieces, strict=True):
            added[at] = piece.view(measures[at].shape)
    return added


def anywhere(placement: Placement) -> bool:
    """Whether a placement deals a tensor out at all."""
    return not placement.is_replicate()


def by_rows(placement: Placement) -> bool:
    """Whether a placement deals out the first dimension."""
    return getattr(placement, "dim", None) == 0


def within_rows(placement: Placement) -> bool:
    """Whether a placement deals out another dimension than the first."""
    return anywhere(placement) and not by_rows(placement)


def _by_mesh(
    wholes: Sequence[Tensor], splits: Splits
) -> dict[tuple[DeviceMesh, tuple[Placement, ...]], list[int]]:
    """Where measures have to be added up, and whose."""
    found: dict[tuple[DeviceMesh, tuple[Placement, ...]], list[int]] = {}
    for at, whole in enumerate(wholes):
        if isinstance(whole, DTensor) and any(map(splits, whole.placements)):
            spread = tuple(Partial() if splits(each) else Replicate() for each in whole.placements)
            found.setdefault((whole.device_mesh, spread), []).append(at)
    return found


def _measure(parts: Sequence[Tensor]) -> list[Tensor]:
    """Norms of plain tensors; one call for all of a kind is a few kernels on a GPU."""
    parts = [each.coalesce().values() if each.is_sparse else each for each in parts]
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for at, each in enumerate(parts):
        kinds.setdefault((each.device, each.dtype), []).append(at)
    found = list(parts)
    for (_, dtype), ats in kinds.items():
        fine = torch.promote_types(dtype, torch.float32)
        measured = torch._foreach_norm([parts[at] for at in ats], 2, fine)
        for at, length in zip(ats, measured, strict=True):
            found[at] = length
    return found


def _squared(norms: Sequence[Tensor]) -> Tensor:
    if not norms:
        return torch.zeros(0, dtype=torch.float64)
    return torch.stack([each.to(norms[0].device) for each in norms]).double().square()
