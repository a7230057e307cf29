"""Tallies: [sum, count] of values, shape (2,), float64, to be added up over batches and ranks."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def tally_of(values: Tensor) -> Tensor:
    """Return the sum and the number of values."""
    total = values.sum(dtype=torch.float64)
    return torch.stack([total, torch.full_like(total, values.numel())])


def empty(device: torch.device) -> Tensor:
    """Return the tally of no values."""
    return torch.zeros(2, dtype=torch.float64, device=device)


def add_up(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tally of each name, summed over all parts."""
    sums: dict[str, Tensor] = {}
    for part in parts:
        for name, tally in part.items():
            sums[name] = sums[name] + tally if name in sums else tally
    return sums
