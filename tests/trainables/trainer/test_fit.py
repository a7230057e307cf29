"""The preparation of a task for training."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from tasks import Decoded, Deep, Normed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Worker, costs
from trainables.data import Batch, Data, Tensors
from trainables.trainer.fit import prepare


@dataclass(frozen=True)
class Plain(Normed):
    """A task with batch norm and random numbers."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(*super().build_model(), nn.Dropout(0.3))


@dataclass(frozen=True)
class Measured(Plain):
    """A task that draws numbers and calls the model while it measures."""

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        random.random()
        torch.rand(3)
        model(sample[0])
        return {"parameters": costs.parameters(model), "flops": costs.flops(model, sample[0])}


class Asked(Tensors):
    """A source that counts the samples that it was asked for."""

    given = 0

    def to(self, device: torch.device, dtype: torch.dtype) -> "Asked":
        return self

    def batch(self, at_B: Tensor) -> Batch:
        self.given += len(at_B)
        return super().batch(at_B)


@pytest.mark.parametrize(("kind", "number"), [(Plain, 0), (Measured, 2)])
def test_only_a_task_that_measures_pays_for_it(kind, number, monkeypatch):
    data = kind().load_data()
    asked = Asked(*(column.float() for column in data.validation.columns[:2]))
    monkeypatch.setattr(kind, "load_data", lambda _: Data(data.train, asked))
    with prepare(kind(), Worker.alone()):
        assert asked.given == number


def test_modules_are_in_their_own_modes_again():
    seen = []

    @dataclass(frozen=True)
    class Half(Deep):
        def build_model(self) -> nn.Module:
            model = super().build_model()
            seen.append(model[2].eval())
            return model

        def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
            seen.extend((model.training, torch.is_grad_enabled()))
            return {}

    with prepare(Half(), Worker.alone()) as session:
        assert seen[1:] == [False, False]
        assert session.state.model.training
        assert not seen[0].training


def test_several_optimizers_are_refused_with_the_way_out():
    @dataclass(frozen=True)
    class Paired(Deep):
        def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
            return [super().build_optimizer(model)]

    with pytest.raises(TypeError, match=r"Paired\.build_optimizer returned list; return a single"):
        Paired().train(Worker.alone())


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
