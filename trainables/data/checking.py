"""What the samples of a source hold, row by row, before anything is trained on them.

A row is a sample: for each column a number or an array of D values. Rows are numbered by position.

Axes: N rows that were read, B of them at once, D values of a column in a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
from torch import Tensor

from trainables.data.loaded import MapDataset
from trainables.data.sources import Batch, Source
from trainables.data.streaming import Stream

AT_ONCE = 256


@dataclass
class Column:
    """What a column holds; `first_nan` is a row, `constant` the values equal in all rows."""

    kind: str  # type and shape in a row
    nan: int = 0
    infinite: int = 0
    first_nan: int | None = None
    values: int = 0  # D, of the first row
    low_D: Tensor | None = field(default=None, compare=False)  # None: rows have several shapes
    high_D: Tensor | None = field(default=None, compare=False)

    @property
    def constant(self) -> list[int]:
        if self.low_D is None or self.high_D is None:
            return []
        return torch.nonzero(self.low_D == self.high_D).flatten().tolist()

    def add(self, numbers: list[int], column: Tensor) -> None:
        rows_BD = column.reshape(len(column), -1)
        if self.values == 0:
            self.values, self.low_D, self.high_D = len(rows_BD[0]), rows_BD[0], rows_BD[0]
        if self.low_D is None or self.high_D is None or len(self.low_D) != len(rows_BD[0]):
            self.low_D = self.high_D = None
        else:
            self.low_D = torch.minimum(self.low_D, rows_BD.amin(dim=0))
            self.high_D = torch.maximum(self.high_D, rows_BD.amax(dim=0))
        if column.is_floating_point():
            nan_B = rows_BD.isnan().any(dim=1)
            self.nan += int(rows_BD.isnan().sum())
            self.infinite += int(rows_BD.isinf().sum())
            if self.first_nan is None and nan_B.any():
                self.first_nan = numbers[int(nan_B.nonzero()[0])]


@dataclass
class Rows:
    """Rows of a source: their numbers, and what tells whether they are equal."""

    of: int | None  # rows that the source has; None: unknown
    columns: list[Column] = field(default_factory=list)
    number_N: list[int] = field(default_factory=list)
    row_N: list[bytes] = field(default_factory=list)  # digests of all columns,
    inputs_N: list[bytes] = field(default_factory=list)  # of all but the last of several columns,
    label_N: list[int | None] = field(default_factory=list)  # and the last one if it is an integer


def read_rows(source: Source, limit: int) -> Rows:
    """Read at most so many rows, evenly spaced; the first ones of a stream."""
    rows = Rows(source.samples)
    for numbers, batch in _batches(source, limit):
        columns = [column.detach().cpu() for column in batch]
        kinds = [_kind(column) for column in columns]
        rows.columns = rows.columns or list(map(Column, kinds))
        for report, column in zip(rows.columns, columns, strict=True):
            report.add(numbers, column)
        raw = [column.reshape(len(column), -1).contiguous().view(torch.uint8) for column in columns]
        for at in range(len(numbers)):
            parts = [
                kind.encode() + column[at].numpy().tobytes()
                for kind, column in zip(kinds, raw, strict=True)
            ]
            rows.row_N.append(_digest(parts))
            rows.inputs_N.append(_digest(parts[:-1] or parts))
        rows.number_N += numbers
        last = columns[-1]
        integers = len(columns) > 1 and last.dim() == 1 and not last.is_floating_point()
        rows.label_N += last.long().tolist() if integers else [None] * len(numbers)
    return rows


def _batches(source: Source, limit: int) -> Iterator[tuple[list[int], Batch]]:
    if isinstance(source, Stream):
        yield from (([pair[0]], source.collate([pair])) for pair in source.read(limit))
        return
    last = len(source) - 1
    at_N = torch.linspace(0, last, min(limit, last + 1), dtype=torch.float64).round().long()
    # Samples of several lengths would be padded to the longest of a batch.
    for at_B in at_N.split(1 if isinstance(source, MapDataset) else AT_ONCE):
        yield at_B.tolist(), source.batch(at_B.to(source.home))


def _kind(column: Tensor) -> str:
    shape = "x".join(map(str, column.shape[1:]))
    return f"{column.dtype}".removeprefix("torch.") + (shape and f" {shape}")


def _digest(parts: list[bytes]) -> bytes:
    return blake2b(b"|".join(parts), digest_size=16).digest()
