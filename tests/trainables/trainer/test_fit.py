"""The preparation of a task for training."""

from dataclasses import dataclass

import pytest
from tasks import Decoded
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Worker
from trainables.data import Batch, Data, Tensors


@dataclass(frozen=True)
class Labelled(Decoded):
    """A task whose labels of padding are -100, and what it does with its losses."""

    reduction: str = "none"
    counted: bool = False
    evaluated: bool = False

    def load_data(self) -> Data:
        sources = super().load_data()
        columns = [
            (token_NT, next_NT.masked_fill(~counts_NT, -100))
            for token_NT, next_NT, counts_NT in (sources.train.columns, sources.validation.columns)
        ]
        return Data(*(Tensors(*pair) for pair in columns))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        token_BT, label_BT = batch
        reduction = "none" if self.evaluated and model.training else self.reduction
        losses = cross_entropy(
            model(token_BT).transpose(1, 2), label_BT, ignore_index=-100, reduction=reduction
        )
        counts = self.counted or (self.evaluated and model.training)
        return losses[label_BT != -100] if counts else losses


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_mean_and_values_of_ignored_labels_are_refused_with_the_way_out(evaluated):
    method = "evaluate" if evaluated else "compute_losses"
    mean = Labelled(reduction="mean", evaluated=evaluated)
    with pytest.raises(TypeError, match=f"Labelled.{method} returned a single number for a batch"):
        mean.train(Worker.alone())
    with pytest.raises(ValueError, match=rf"Labelled.{method} returned \d+ values, of which \d+ "):
        Labelled(evaluated=evaluated).train(Worker.alone())
    worker = Worker.alone()
    Labelled(counted=True).train(worker)
    assert len(worker.reports) == 1
