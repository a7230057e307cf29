"""Averages over ranks, in a world that a stand-in for the reduction doubles."""

import pytest
import torch

from trainables.parallel import averaging
from trainables.parallel.averaging import average


@pytest.fixture
def messages(monkeypatch):
    """Stand for a second rank whose tensors are all 3.0; record what is exchanged."""
    sent = []

    def add(tensor):
        sent.append((tensor.dtype, tensor.numel()))
        tensor.add_(1.5)  # its share of the mean

    monkeypatch.setattr(averaging.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(averaging.dist, "all_reduce", add)
    return sent


def test_each_tensor_becomes_the_mean_in_its_own_memory(messages):
    weights = [torch.ones(2, 3), torch.tensor(5.0), torch.ones(3)[::2]]
    before = [weight.data_ptr() for weight in weights]
    average(weights)
    assert [weight.flatten().tolist() for weight in weights] == [[2.0] * 6, [4.0], [2.0, 2.0]]
    assert [weight.data_ptr() for weight in weights] == before
    assert messages == [(torch.float32, 9)], "one message takes them all"


def test_each_format_has_its_message_and_none_is_too_large(messages, monkeypatch):
    monkeypatch.setattr(averaging, "LARGEST", 4 * 6)
    floats = [torch.ones(4), torch.ones(2), torch.ones(1)]
    average([floats[0], torch.ones(2, dtype=torch.float64), *floats[1:]])
    assert sorted(messages, key=str) == [(torch.float32, 1), (torch.float32, 6), (torch.float64, 2)]
