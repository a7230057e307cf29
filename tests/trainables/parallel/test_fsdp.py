"""Weights sharded over ranks. If these fail, a model on two GPUs learns something else."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from tasks import Decoded, Deep, curves, learned, losses, resumed
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainables import Training, Worker
from trainables.parallel.fsdp import Fsdp
from trainables.trainer.fit import prepare

EXACT = Training("fsdp", "64-true")


@pytest.mark.long
def test_a_norm_and_a_head_around_the_blocks_take_mixed_precision(on_two_ranks):
    precisions = ("64-true", "bf16-mixed", "16-mixed")
    trainings = [
        *(Training("fsdp", name) for name in precisions),
        Training("fsdp", "bf16-mixed", activation_checkpointing=1, accumulate=2),
    ]
    (exact, bfloat, half, recomputed), _ = on_two_ranks(curves, Decoded(lr=0.1), trainings, 2)
    alone = losses(learned(Decoded(lr=0.1), Training(precision="64-true")))
    assert losses(exact) == pytest.approx(alone, abs=1e-12)
    assert losses(bfloat) == pytest.approx(alone, rel=0.01)
    assert losses(recomputed) == pytest.approx(losses(bfloat), rel=1e-3)
    # float16 skips updates until its scale has come down; then it learns.
    assert half[0]["train/loss_scale"] < 2**16
    assert half[-1]["train/loss"] < half[0]["train/loss"]


class Folded(nn.Module):
    """A task whose blocks share weights, with each other and with the model around them."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.blocks[2].weight = self.blocks[0].weight
        self.last = nn.Linear(8, 8)
        self.last.weight = self.blocks[4].weight
        self.head = nn.Linear(8, 1)

    def forward(self, x_BTF: Tensor) -> Tensor:
        x_BTF = self.lift(x_BTF)
        for layer in (*self.blocks, self.last):
            x_BTF = x_BTF + layer(x_BTF).tanh()
        return self.head(x_BTF)


@dataclass(frozen=True)
class Tied(Deep):
    """Folded with fewer weights than names of them."""

    def build_model(self) -> nn.Module:
        return Folded()


def tied(rank: int, folder: Path) -> tuple[list[list[dict[str, float]]], object]:
    trainings = [
        EXACT,
        replace(EXACT, reshard_after_forward=False, accumulate=2, clip=0.1, optimizer="adamw"),
    ]
    return curves(rank, Tied(), trainings, 2), resumed(rank, Tied(), trainings[1:], 2, folder)


@pytest.mark.full
def test_weights_that_blocks_share_stay_one(on_two_ranks, tmp_path):
    (tied_curves, [(uninterrupted, resumed_reports)]), _ = on_two_ranks(tied, tmp_path)
    exact = Training(precision="64-true")
    for reports, training in zip(
        tied_curves, [exact, replace(exact, clip=0.1, optimizer="adamw")], strict=True
    ):
        assert losses(reports) == pytest.approx(losses(learned(Tied(), training)), abs=1e-12)
    assert losses(resumed_reports) == losses(uninterrupted)


def held(rank: int, reshard_after_forward: bool) -> dict[str, object]:
    """Return a rank's numbers before, between and after passes of 4 blocks and a head."""
    worker = Worker.alone(training=Training("fsdp", reshard_after_forward=reshard_after_forward))
    strategy = Fsdp(replace(worker, rank=rank, world_size=2))
    blocks = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    model = strategy.shard(nn.Sequential(blocks, nn.Linear(8, 2)))
    before = numbers(model)
    loss = model(torch.ones(2, 8)).sum()
    between, gathered = numbers(model), [weight.untyped_storage() for weight in model.parameters()]
    loss.backward()
    sizes = [weight.nbytes() for weight in gathered]
    complete = [isinstance(weight, DTensor) for weight in model.parameters()]
    return {
        "before": before,
        "between": between,
        "after": numbers(model),
        "dealt": all(complete),
        "freed": sum(sizes[:8]) == 0,
    }


def numbers(model: nn.Module) -> int:
    """Return how many numbers of weights this rank holds."""
    return sum(
        (weight.to_local() if isinstance(weight, DTensor) else weight).numel()
        for weight in model.parameters()
    )


@pytest.mark.parametrize("reshard_after_forward", [True, False])
def test_each_rank_keeps_half_of_the_weights(on_two_ranks, reshard_after_forward):
    total = 4 * (8 * 8 + 8) + 8 * 2 + 2
    for seen in on_two_ranks(held, reshard_after_forward):
        assert seen["before"] == seen["after"] == total / 2
        assert seen["dealt"]
        if reshard_after_forward:
            assert seen["between"] < total
        else:
            assert (seen["between"], seen["freed"]) == (total, True)


def gathered_after_evaluation(rank: int) -> list[str]:
    alone = Worker.alone(training=Training("fsdp", reshard_after_forward=False))
    with prepare(Deep(), replace(alone, rank=rank, world_size=2)) as session:
        session.evaluate()
        weights = session.passes.unwrapped_model.named_parameters()
        return [name for name, weight in weights if not isinstance(weight, DTensor)]


def test_nothing_stays_gathered_after_an_evaluation(on_two_ranks):
    assert on_two_ranks(gathered_after_evaluation) == [[], []]


def test_offload_is_refused_where_there_is_no_gpu():
    worker = replace(Worker.alone(training=Training("fsdp", cpu_offload=True)), world_size=2)
    with pytest.raises(ValueError, match=r"training\.cpu_offload is true, but there is no GPU"):
        Fsdp(worker).shard(nn.Linear(2, 2))
