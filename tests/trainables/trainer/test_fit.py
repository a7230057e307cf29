"""The preparation of a task for training."""

from dataclasses import dataclass, replace

import pytest
import torch
from tasks import Decoded, Deep, Normed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.trainer.fit import _check_optimizer, build_optimizer


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


class Derived(torch.optim.Muon):
    pass


@dataclass(frozen=True)
class OwnMuon(Deep):
    """A task with an optimizer of its own that iterates over whole matrices."""

    kind: type[torch.optim.Muon] = torch.optim.Muon
    alone: bool = False

    def build_optimizer(self, model: nn.Module):
        matrices = [weight for weight in model.parameters() if weight.ndim == 2]
        others = [weight for weight in model.parameters() if weight.ndim != 2]
        muon = self.kind(matrices, lr=self.lr)
        return muon if self.alone else [muon, torch.optim.AdamW(others, lr=self.lr)]


@pytest.mark.parametrize("task", [OwnMuon(), OwnMuon(alone=True), OwnMuon(kind=Derived)])
@pytest.mark.parametrize("strategy", ["fsdp", "tensor"])
def test_muon_over_parts_of_matrices_is_refused_whoever_builds_it(task, strategy):
    worker = replace(Worker.alone(training=Training(strategy)), world_size=2)
    model = task.build_model()
    with pytest.raises(ValueError, match=r"training\.strategy is .* rounds differently"):
        _check_optimizer(build_optimizer(task, model, worker.training), worker)
    task.train(Worker.alone())


@pytest.mark.parametrize(("task", "warns"), [(Normed(), True), (Deep(), False)])
def test_that_batch_norms_see_micro_batches_is_said(capfd, task, warns):
    task.train(Worker.alone(training=Training(accumulate=2)))
    assert ("warning: batch norms (3, ...) see a micro-batch" in capfd.readouterr().err) == warns
    task.train(Worker.alone())
    assert "batch norms" not in capfd.readouterr().err
