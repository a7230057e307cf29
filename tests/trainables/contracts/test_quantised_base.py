"""Adapters over a base in 4 bits (QLoRA). If these fail, the base is cast, saved, or changed."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from tasks import Deep, curves, losses
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.checkpoints.storing import read
from trainables.data import Batch
from trainables.pretrained import mark_frozen_base
from trainables.trainer.fit import prepare
from trainables.worker import LocalLink


@dataclass(frozen=True)
class InFourBits(Deep):
    """A base with a layer in 4 bits, adapters of peft, and a new head, on samples of Deep."""

    lr: float = 0.001
    seed: int = 0  # of the base

    def build_model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)  # stands for pretrained weights
            inner = nn.Linear(64, 64)
            model = nn.Sequential(
                nn.Linear(3, 64), nn.Tanh(), inner, nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 1)
            )
        model[2] = Linear4bit(64, 64, quant_type="nf4")
        model[2].load_state_dict(inner.state_dict())
        model[2].to("cpu")  # packs the weights
        # Else evaluation repacks them on processors with AVX-512 (bitsandbytes 0.50.2), and a
        # continued trial, whose base is packed anew, computes with others than before.
        model[2].support_avx512bf16_for_cpu = False
        model = get_peft_model(
            model, LoraConfig(r=2, target_modules=["0", "2"], modules_to_save=["5"])
        )
        mark_frozen_base(model)
        return model

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        return (model(x_BTF).float().squeeze(2) - y_BT)[counts_BT].square()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
def test_packed_weights_keep_their_bytes(precision):
    packed = [value.clone() for value in packed_weights(InFourBits().build_model())]
    assert len(packed) == 1
    with prepare(InFourBits(), Worker.alone(training=Training(precision=precision))) as trainer:
        trainer.train_steps(1, 1)
        for before, after in zip(packed, packed_weights(trainer.state.model), strict=True):
            assert torch.equal(before, after)


def packed_weights(model: nn.Module) -> list[Tensor]:
    return [weight.data for weight in model.parameters() if weight.dtype == torch.uint8]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_trial_continues_exactly_from_adapters_alone(tmp_path, precision):
    task = InFourBits()
    worker = replace(
        Worker.alone(until=2, folder=tmp_path, training=Training(precision=precision)), total=4
    )
    uninterrupted = replace(worker, until=4, trial="whole", link=LocalLink())
    task.train(uninterrupted)
    task.train(worker)
    start = worker.reports[-1].checkpoint
    names = {name for name in read(Path(start.path)).tensors if name.startswith("model.")}
    assert names
    assert all("lora_" in name or "modules_to_save" in name for name in names)
    continued = replace(worker, order=2, first=3, until=4, start=start)
    task.train(continued)
    expected, found = (
        [report.metrics["val/loss"] for report in each.reports] for each in (uninterrupted, worker)
    )
    assert found == expected
    assert expected[-1] < expected[0]
    with pytest.raises(ValueError, match="rests on frozen weights"):
        InFourBits(seed=1).train(replace(continued, order=3))


@pytest.mark.full
def test_ranks_of_ddp_learn_what_one_rank_learns(on_two_ranks):
    training = Training("ddp")
    (found,) = on_two_ranks(curves, InFourBits(), [training], 2)[0]
    (alone,) = curves(0, InFourBits(), [Training()], 1)
    assert losses(found) == pytest.approx(losses(alone), rel=1e-5)
