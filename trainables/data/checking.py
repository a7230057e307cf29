"""What the samples of a source hold, row by row, before anything is trained on them.

A row is a sample: for each column a number or an array. Rows are numbered by position.

Axes: N rows that were read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trainables.data.digests import digest_of
from trainables.data.sources import Batch, Source
from trainables.data.streaming import Stream


@dataclass
class Column:
    """What a column holds."""

    kind: str  # type and shape in a row
    nan: int = 0
    infinite: int = 0
    first_nan: int | None = None  # a row

    def add(self, number: int, values: Tensor) -> None:
        nan = int(values.isnan().sum())
        if nan and self.first_nan is None:
            self.first_nan = number
        self.nan += nan
        self.infinite += int(values.isinf().sum())


@dataclass
class Rows:
    """Rows of a source: their numbers, and what tells whether they are equal."""

    of: int | None  # rows that the source has; None: unknown
    columns: list[Column] = field(default_factory=list)
    number_N: list[int] = field(default_factory=list)
    row_N: list[str] = field(default_factory=list)  # digests of all columns,
    inputs_N: list[str] = field(default_factory=list)  # of all but the last of several columns,
    label_N: list[int | None] = field(default_factory=list)  # and the last one if it is an integer


def read_rows(source: Source, limit: int) -> Rows:
    """Read at most so many rows, evenly spaced; the first ones of a stream."""
    rows = Rows(source.samples)
    for number, batch in _single_rows(source, limit):
        row = [column.detach().cpu() for column in batch]
        rows.columns = rows.columns or [Column(_kind(column)) for column in row]
        for column, values in zip(rows.columns, row, strict=True):
            column.add(number, values)
        last = row[-1]
        is_label = len(row) > 1 and last.dim() == 1 and not last.is_floating_point()
        rows.number_N.append(number)
        rows.row_N.append(digest_of(row))
        rows.inputs_N.append(digest_of(row[:-1] or row))
        rows.label_N.append(int(last) if is_label else None)
    return rows


def _single_rows(source: Source, limit: int) -> Iterator[tuple[int, Batch]]:
    """Yield numbers of rows, and batches of one: in larger ones, samples may be padded."""
    if isinstance(source, Stream):
        yield from ((pair[0], source.collate([pair])) for pair in source.read(limit))
        return
    last = len(source) - 1
    at_N = torch.linspace(0, last, min(limit, last + 1), dtype=torch.float64).round().long()
    for at_1 in at_N.split(1):
        yield int(at_1), source.batch(at_1.to(source.index_device))


def _kind(column: Tensor) -> str:
    shape = "x".join(map(str, column.shape[1:]))
    return f"{column.dtype}".removeprefix("torch.") + (shape and f" {shape}")
