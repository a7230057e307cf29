"""Weights that ranks share. If these fail, a model that needs two GPUs learns something else."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from tasks import Deep, curves, learned, resumed
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainables import Training, Worker
from trainables.fitting.fit import prepare
from trainables.parallel.fsdp import Fsdp

EXACT = Training("fsdp", "64-true")


def losses(reports: list[dict[str, float]]) -> list[float]:
    return [report[name] for report in reports for name in ("train/loss", "val/loss")]


def test_two_ranks_learn_what_one_learns(on_two_ranks):
    trainings = [
        EXACT,
        replace(EXACT, accumulate=2),
        replace(EXACT, accumulate=2, reshard=False, ema=0.9),
        replace(EXACT, accumulate=2, clip=0.1, optimizer="adamw", schedule="cosine"),
    ]
    heard, _ = on_two_ranks(curves, Deep(), trainings, 2)
    exact = Training(precision="64-true")
    alone = [
        exact,
        exact,
        replace(exact, ema=0.9),
        replace(exact, clip=0.1, optimizer="adamw", schedule="cosine"),
    ]
    for reports, training in zip(heard, alone, strict=True):
        expected = losses(learned(Deep(), training))
        assert losses(reports) == pytest.approx(expected, abs=1e-12)


def test_a_rank_without_a_sample_takes_part_in_training_and_evaluation(on_two_ranks):
    heard, _ = on_two_ranks(curves, Deep(batch=1), [EXACT], 2)
    alone = losses(learned(Deep(batch=1), Training(precision="64-true")))
    assert losses(heard[0]) == pytest.approx(alone, abs=1e-12)


def test_a_resumed_trial_goes_on_bit_by_bit(on_two_ranks, tmp_path):
    trainings = [Training("fsdp", optimizer="adamw", ema=0.9), Training("fsdp", reshard=False)]
    heard, _ = on_two_ranks(resumed, Deep(dropout=0.2), trainings, 2, tmp_path)
    for whole, parts in heard:
        assert losses(parts) == losses(whole)


def test_mixed_precisions_learn_nearly_the_same(on_two_ranks):
    trainings = [Training("fsdp", name) for name in ("bf16-mixed", "16-mixed")]
    heard, _ = on_two_ranks(curves, Deep(lr=0.01), trainings, 2)
    alone = losses(learned(Deep(lr=0.01), Training()))
    bfloat, half = heard
    assert losses(bfloat) == pytest.approx(alone, rel=0.05)
    # float16 skips updates until its scale has come down, so it is behind.
    last = [reports[-1]["train/loss"] for reports in (bfloat, half, half[:1])]
    assert 0.9 * last[0] < last[1] < last[2]
    assert half[-1]["train/loss_scale"] < 2**16


class Folded(nn.Module):
    """Blocks that share weights: two of them one, and another one what lies outside of them."""

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
    """The same with fewer weights than names of them."""

    def build_model(self) -> nn.Module:
        return Folded()


def tied(rank: int, folder: Path) -> tuple[list[list[dict[str, float]]], object]:
    trainings = [EXACT, replace(EXACT, reshard=False, accumulate=2, clip=0.1, optimizer="adamw")]
    return curves(rank, Tied(), trainings, 2), resumed(rank, Tied(), trainings[1:], 2, folder)


def test_weights_that_blocks_share_stay_one(on_two_ranks, tmp_path):
    (heard, [(whole, parts)]), _ = on_two_ranks(tied, tmp_path)
    exact = Training(precision="64-true")
    for reports, training in zip(
        heard, [exact, replace(exact, clip=0.1, optimizer="adamw")], strict=True
    ):
        assert losses(reports) == pytest.approx(losses(learned(Tied(), training)), abs=1e-12)
    assert losses(parts) == losses(whole)


def held(rank: int, reshard: bool) -> dict[str, object]:
    """What a rank has before, between and after the passes of a model of 4 blocks and a head."""
    worker = Worker.alone(training=Training("fsdp", reshard=reshard))
    strategy = Fsdp(replace(worker, rank=rank, world_size=2))
    blocks = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    model = strategy.shard(nn.Sequential(blocks, nn.Linear(8, 2)))
    before = numbers(model)
    loss = model(torch.ones(2, 8)).sum()
    between, gathered = numbers(model), [each.untyped_storage() for each in model.parameters()]
    loss.backward()
    sizes = [each.nbytes() for each in gathered]
    whole = [isinstance(each, DTensor) for each in model.parameters()]
    return {
        "before": before,
        "between": between,
        "after": numbers(model),
        "dealt": all(whole),
        "freed": sum(sizes[:8]) == 0,
    }


def numbers(model: nn.Module) -> int:
    """How many numbers of weights this rank holds."""
    return sum(
        (each.to_local() if isinstance(each, DTensor) else each).numel()
        for each in model.parameters()
    )


@pytest.mark.parametrize("reshard", [True, False])
def test_each_rank_keeps_half_of_the_weights(on_two_ranks, reshard):
    whole = 4 * (8 * 8 + 8) + 8 * 2 + 2
    for seen in on_two_ranks(held, reshard):
        assert seen["before"] == seen["after"] == whole / 2
        assert seen["dealt"]
        if reshard:
            assert seen["between"] < whole
        else:
            assert (seen["between"], seen["freed"]) == (whole, True)


def gathered_after_evaluation(rank: int) -> list[str]:
    alone = Worker.alone(training=Training("fsdp", reshard=False))
    with prepare(Deep(), replace(alone, rank=rank, world_size=2)) as session:
        session.evaluate()
        weights = session.passes.bare.named_parameters()
        return [name for name, weight in weights if not isinstance(weight, DTensor)]


def test_nothing_stays_gathered_after_an_evaluation(on_two_ranks):
    assert on_two_ranks(gathered_after_evaluation) == [[], []]


def test_offload_is_refused_where_there_is_no_gpu():
    worker = replace(Worker.alone(training=Training("fsdp", offload=True)), world_size=2)
    with pytest.raises(ValueError, match=r"training\.offload is true, but there is no GPU"):
        Fsdp(worker).shard(nn.Linear(2, 2))
