"""The samples of a run through a pipeline."""

import pytest
import torch

from trainables.data import Tensors
from trainables.parallel.microbatches import MicroBatches


def test_a_task_that_calls_the_model_twice_is_refused():
    batches = MicroBatches(Tensors(torch.ones(2)), [torch.arange(2)], 1, 0, True)
    with pytest.raises(ValueError, match="twice for a batch"):
        batches.carry(lambda model, batch: model(1) + model(2), 0, torch.ones(2))
