"""Samples picked one by one. If these fail, a sample's noise depends on its batch."""

import random

import pytest
import torch

from trainables.data.samples import Collation, Samples

UNCONVERTED = Collation("MapDataset", None)


def noisy(position):
    return torch.rand(2, dtype=torch.float64), position


def test_batches_made_here_leave_the_generators_as_they_were():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    random.seed(1)
    Samples(noisy, UNCONVERTED).load_here(torch.tensor([3, 4]), 5)
    assert torch.equal(torch.rand(1), expected)


def test_floating_point_columns_have_the_chosen_format_and_others_keep_theirs():
    values, positions = Samples(noisy, Collation("MapDataset", torch.float32))[5, [0, 1]]
    assert (values.dtype, positions.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("sample", ["text", None, {"x": 1}, (1.0, b"bytes")])
def test_what_is_no_number_is_refused_with_its_position(sample):
    with pytest.raises((TypeError, ValueError), match=r"MapDataset: .*samples.* at 4 to 4"):
        Samples(lambda position: sample, UNCONVERTED)[0, [4]]


def test_samples_of_different_shapes_do_not_go_together():
    with pytest.raises(ValueError, match="at 1 to 2 of a batch do not go together"):
        Samples(lambda position: torch.zeros(position), UNCONVERTED)[0, [1, 2]]


def padded(samples):
    return (torch.nn.utils.rnn.pad_sequence(samples, batch_first=True),)


def test_a_collate_fn_makes_a_batch_of_samples_of_any_length_and_kind():
    (batch,) = Samples(torch.ones, Collation("MapDataset", torch.float64, padded))[0, [1, 3]]
    assert batch.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch.dtype == torch.float64
    lengths_of = Collation("MapDataset", None, lambda texts: torch.tensor([*map(len, texts)]))
    (lengths,) = Samples(str, lengths_of)[0, [7, 10]]
    assert lengths.tolist() == [1, 2]


@pytest.mark.parametrize("batch", [{"x": torch.zeros(2)}, torch.zeros(3), torch.tensor(1.0)])
def test_a_collate_fn_that_makes_no_rows_of_tensors_is_refused(batch):
    with pytest.raises(TypeError, match=r"collate_fn returned .* for 2 samples"):
        Samples(str, Collation("MapDataset", None, lambda _: batch))[0, [0, 1]]
