from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn

from trainables.modules import evaluating, restored


def fail_within(context: AbstractContextManager[None], change: Callable[[], object]) -> None:
    with context:
        change()
        raise ValueError("here")


def test_each_module_gets_its_own_mode_back():
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    model[0].eval()
    seen = []
    with pytest.raises(ValueError, match="here"):
        fail_within(evaluating(model), lambda: seen.extend(part.training for part in model))
    assert seen == [False, False]
    assert (model.training, model[0].training, model[1].training) == (True, False, True)


def test_values_are_restored_even_after_an_error():
    norm = nn.BatchNorm1d(2)
    before = [buffer.clone() for buffer in norm.buffers()]
    with pytest.raises(ValueError, match="here"):
        fail_within(restored(norm.buffers()), lambda: norm(torch.randn(8, 2)))
    assert all(map(torch.equal, norm.buffers(), before))
