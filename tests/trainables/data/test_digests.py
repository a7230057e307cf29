"""Digests of samples."""

import torch

from trainables.data import Tensors
from trainables.data.digests import MOST


def test_of_many_samples_a_digest_looks_at_some_from_all_over():
    column = torch.zeros(5 * MOST, dtype=torch.uint8)
    before = Tensors(column.clone()).digest
    column[::5] = 1
    assert Tensors(column).digest != before
    assert Tensors(column).digest == Tensors(column.clone()).digest
