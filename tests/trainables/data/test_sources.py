"""If these fail, training sees other samples than those at the positions that it drew."""

import pytest
import torch

from trainables.data import Tensors


def test_a_batch_is_the_samples_at_the_positions():
    source = Tensors(torch.arange(5) * 10, torch.arange(5.0).reshape(5, 1))
    numbers, rows = source.batch(torch.tensor([3, 0]))
    assert numbers.tolist() == [30, 0]
    assert rows.tolist() == [[3.0], [0.0]]
    assert len(source) == 5


def test_only_floating_point_columns_change_their_format():
    source = Tensors(torch.arange(2), torch.zeros(2)).to(torch.device("cpu"), torch.float64)
    assert [column.dtype for column in source.columns] == [torch.int64, torch.float64]


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match=r"columns have lengths \[2, 3\]; give one or more"):
        Tensors(torch.zeros(2), torch.zeros(3))
