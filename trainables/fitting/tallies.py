"""Tallies: [sum, count] of values, shape (2,), float64; they add up over batches and ranks."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch
from torch import Tensor


def tally_of(values: Tensor) -> Tensor:
    """The sum and the number of values."""
    total = values.sum(dtype=torch.float64)
    return torch.stack([total, _number(values.numel(), values.device)])


@lru_cache(maxsize=64)
def _number(count: int, device: torch.device) -> Tensor:
    """A number as a tensor; kept, since batches are mostly of one size."""
    return torch.tensor(count, dtype=torch.float64, device=device)


def empty(device: torch.device) -> Tensor:
    """The tally of nothing."""
    return torch.zeros(2, dtype=torch.float64, device=device)


def add_up(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tally of each name over all parts."""
    sums: dict[str, Tensor] = {}
    for part in parts:
        for name, tally in part.items():
            sums[name] = sums[name] + tally if name in sums else tally
    return sums
