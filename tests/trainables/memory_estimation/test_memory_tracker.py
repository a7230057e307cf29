"""Tasks that cannot run on tensors without data."""

from dataclasses import dataclass

import pytest
from forecasts import Wide, found

from trainables import Training
from trainables.memory_estimation.memory_tracker import CannotForecast


@dataclass(frozen=True)
class Looking(Wide):
    """A task that branches on a value computed by the model."""

    def compute_losses(self, model, batch):
        losses = model(batch[0]).square()
        return losses if losses.mean().item() < 1 else losses.sqrt()


def test_what_needs_numbers_is_refused_with_the_reason():
    with pytest.raises(CannotForecast, match="looks at a number"):
        found(Looking(), Training())
