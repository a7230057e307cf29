"""If these fail, means over batches and ranks are wrong, or a forecast breaks a later training."""

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from trainables.training_state.tallies import tally_of


def test_a_tally_without_data_leaves_nothing_behind():
    with FakeTensorMode():
        assert isinstance(tally_of(torch.ones(17)), FakeTensor)
    tally = tally_of(torch.ones(17))
    assert not isinstance(tally, FakeTensor)
    assert tally.tolist() == [17.0, 17.0]
