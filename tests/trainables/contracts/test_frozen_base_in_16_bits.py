"""Adapters in 32 bits over a frozen base in 16. If these fail, a base takes twice its memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from tasks import Deep, curves, learned, losses
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainables import Training, Worker
from trainables.data import Batch
from trainables.lora import LoraOptions, adapt, adapters
from trainables.trainer.fit import prepare

PRECISIONS = ("32-true", "bf16-mixed")
SHARED = ("ddp", "zero1", "fsdp")
KEPT = {(False, torch.bfloat16), (True, torch.float32)}  # whether weights are trained, and formats


@dataclass(frozen=True)
class Based(Deep):
    """Deep as a frozen base in bfloat16, with adapters, a trained norm and a new head."""

    lr: float = 0.01

    def build_model(self) -> nn.Module:
        model = Deep().build_model().bfloat16()
        model[7] = nn.Linear(12, 1)
        options = LoraOptions(rank=2, alpha=4.0, targets=("[035]",), whole=("4", "7"))
        adapt(model, options)
        for layer in adapters(model).values():
            nn.init.normal_(layer.lora_B)  # with zeros, the other matrix would have no gradient
        return model

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        return (model(x_BTF).float().squeeze(2) - y_BT)[counts_BT].square()


def gradients(rank: int, trainings: Sequence[Training], ranks: int) -> list[dict[str, Tensor]]:
    """Return the complete gradients of an update, under each of the options."""
    results = []
    for training in trainings:
        worker = replace(Worker.alone(training=training), rank=rank, world_size=ranks)
        with prepare(Based(), worker) as trainer:
            weights = dict(trainer.state.model.named_parameters())
            assert {(weight.requires_grad, weight.dtype) for weight in weights.values()} == KEPT
            share = torch.arange(8)[rank::ranks]
            trainer.passes.backward([share], float(ranks), careful=False)
            grads = {name: weight.grad for name, weight in weights.items() if weight.requires_grad}
            results.append({name: complete(gradient) for name, gradient in grads.items()})
    return results


def complete(gradient: Tensor) -> Tensor:
    return (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone()


def test_gradients_are_those_of_one_rank_and_the_base_stays_in_16_bits(on_two_ranks):
    for precision, tolerance in zip(PRECISIONS, (1e-6, 0.05), strict=True):
        (alone,) = gradients(0, [Training(precision=precision)], 1)
        trainings = [Training(name, precision) for name in SHARED]
        for shared in on_two_ranks(gradients, trainings, 2)[0]:
            assert shared.keys() == alone.keys()
            for name, gradient in alone.items():
                off = (shared[name] - gradient).abs().max()
                assert off <= tolerance * gradient.abs().max() > 0, (precision, name)


@pytest.mark.long
@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_strategy_learns_what_one_rank_learns(precision, on_two_ranks):
    alone = losses(learned(Based(), Training(precision=precision)))
    assert alone[-1] < alone[1]
    trainings = [
        *(Training(name, precision) for name in (*SHARED, "deepspeed")),
        Training("pipeline", precision, accumulate=2),
        Training("fsdp", precision, activation_checkpointing=1, ema=0.9),
    ]
    for training, reports in zip(
        trainings, on_two_ranks(curves, Based(), trainings, 2)[0], strict=True
    ):
        rounding = 0.1 if precision == "bf16-mixed" or training.strategy == "deepspeed" else 1e-5
        names = ("train/loss",) if training.ema else ("train/loss", "val/loss")
        found = [report[name] for report in reports for name in names]
        expected = alone[:: 2 // len(names)]
        assert found == pytest.approx(expected, rel=rounding), training.strategy


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_other_precisions_cast_all_weights(precision):
    with prepare(Based(), Worker.alone(training=Training(precision=precision))) as trainer:
        formats = {weight.dtype for weight in trainer.state.model.parameters()}
    assert formats == {torch.float64 if precision == "64-true" else torch.bfloat16}
