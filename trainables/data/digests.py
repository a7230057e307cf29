"""Digests that identify samples, computed from a part of them where there are many."""

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST = 2**24  # bytes of a column that are hashed: some 10 ms
BLOCKS = 16  # blocks of a file that are hashed
SHOWN = 16  # hexadecimal digits of a digest


def digest_of(columns: Iterable[Tensor]) -> str:
    """Return a digest of all shapes, types and values; of large columns, of evenly spaced rows."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update(f"{column.dtype} {tuple(column.shape)}".encode())
        if column.layout == torch.strided:
            step = -(-column.numel() * column.element_size() // MOST)
            rows = column.detach()[:: max(1, step)].cpu().contiguous()
            digest.update(rows.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:SHOWN]


def digest_of_file(values_N: NDArray[np.generic], what: str) -> str:
    """Return a digest of values on disk: of evenly spaced blocks, both ends included.

    Args:
        what: more text that identifies them.
    """
    digest = hashlib.sha256(f"{what} {values_N.dtype} {len(values_N)}".encode())
    size = min(len(values_N), MOST // BLOCKS // values_N.itemsize)
    for begin in np.linspace(0, len(values_N) - size, BLOCKS).astype(int):
        digest.update(values_N[begin : begin + size].tobytes())
    return digest.hexdigest()[:SHOWN]
