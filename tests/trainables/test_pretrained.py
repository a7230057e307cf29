"""Frozen bases of models, told apart by their weights."""

import pytest
import torch
from adaptable import OPTIONS, Net
from torch import nn

from trainables.lora import adapt
from trainables.pretrained import fingerprints


@pytest.fixture(autouse=True)
def exact():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_the_fingerprint_is_of_the_frozen_weights_alone():
    torch.manual_seed(1)
    first, second = Net(), Net()
    second.load_state_dict(first.state_dict())
    nn.init.normal_(second.head.weight)
    assert fingerprints(adapt(first, OPTIONS)) == fingerprints(adapt(second, OPTIONS))
    assert len(fingerprints(first)) == 1
    assert fingerprints(first) != fingerprints(adapt(Net(), OPTIONS))
