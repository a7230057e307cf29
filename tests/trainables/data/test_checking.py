"""If these fail, `validate --data` says of samples what is not so."""

from dataclasses import dataclass

import pytest
import torch

from trainables.data import MapDataset, Stream, Tensors, TokenFile, Tokens
from trainables.data.checking import read_rows

X = torch.tensor([[0.0, 5.0], [1.0, 5.0], [float("nan"), 5.0], [0.0, 5.0], [float("inf"), 5.0]])
Y = torch.tensor([0, 1, 1, 0, 1])


@dataclass(frozen=True)
class Row:
    """The rows of X and Y one by one."""

    def __getitem__(self, position):
        return X[position], Y[position]

    def __len__(self):
        return len(X)


def joined(samples):
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


@pytest.mark.parametrize(
    "source",
    [
        Tensors(X, Y),
        MapDataset(Row()),
        MapDataset(Row(), collate_fn=joined),
        Stream(list(zip(X, Y, strict=True)), length=5),
    ],
)
def test_each_source_of_the_same_samples_has_the_same_rows(source):
    rows = read_rows(source, 100)
    assert rows == read_rows(Tensors(X, Y), 100)
    assert (rows.of, rows.number_N, rows.label_N) == (5, [0, 1, 2, 3, 4], [0, 1, 1, 0, 1])
    first, second = rows.columns
    assert (first.kind, first.nan, first.infinite, first.first_nan) == ("float32 2", 1, 1, 2)
    assert (second.kind, second.nan) == ("int64", 0)
    assert [rows.row_N.index(row) for row in rows.row_N] == [0, 1, 2, 0, 4]


def test_more_rows_are_read_evenly_spaced_and_of_a_stream_the_first_ones():
    assert read_rows(Tensors(torch.arange(1000)), 4).number_N == [0, 333, 666, 999]
    assert read_rows(MapDataset(float, length=5), 2).number_N == [0, 4]
    assert read_rows(Stream([1.0, 2.0, 3.0]), 2).number_N == [0, 1]
    assert read_rows(Stream([1.0, 2.0, 3.0]), 5).of is None


def test_samples_that_draw_numbers_are_those_of_an_epoch():
    rows = read_rows(MapDataset(lambda position: torch.randint(3, (2,)), length=60), 60)
    assert len({*rows.row_N}) == 9


def test_labels_are_integers_in_the_last_of_several_columns():
    number = torch.arange(3)
    for columns in [(number,), (number, number.float()), (number, number[:, None])]:
        assert read_rows(Tensors(*columns), 9).label_N == [None] * 3
    assert read_rows(Tensors(number, number > 1), 9).label_N == [0, 0, 1]


def test_rows_that_differ_in_the_last_column_only_have_equal_inputs():
    rows = read_rows(Tensors(torch.zeros(3), torch.tensor([1, 2, 1])), 9)
    assert len({*rows.inputs_N}) == 1
    assert [rows.row_N.index(row) for row in rows.row_N] == [0, 1, 0]


def test_windows_of_tokens_and_rows_of_several_lengths_are_compared(tmp_path):
    file = TokenFile.build(tmp_path / "a.tokens", [[1, 2, 3] * 5], list, 9)
    rows = read_rows(Tokens(file, 3), 99)
    assert [rows.row_N.index(row) for row in rows.row_N] == [0, 0, 0, 0, 4]
    ragged = read_rows(MapDataset(lambda position: torch.ones(1 + position % 2), length=4), 9)
    assert [ragged.row_N.index(row) for row in ragged.row_N] == [0, 1, 0, 1]
