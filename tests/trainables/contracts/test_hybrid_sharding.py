"""Weights sharded within groups of ranks. If these fail, groups learn apart from each other."""

from dataclasses import replace
from pathlib import Path

import pytest
from tasks import Decoded, Deep, Forgetful, curve, curves, learned, losses, resumed, shared
from torch.distributed.tensor import DTensor

from trainables import Training, Worker
from trainables.parallel.strategy import choose
from trainables.trainer.fit import build_state

HYBRID = Training("fsdp", "64-true", shard_ranks=2)


def held(rank: int) -> tuple[float, list[int]]:
    """Return the share of the weights on a rank, and the ranks that hold the same."""
    worker = replace(Worker.alone(training=HYBRID), rank=rank, world_size=4)
    state = build_state(Decoded(), choose(worker))
    weights = list(state.model.parameters())
    assert all(isinstance(weight, DTensor) for weight in weights)
    share = sum(weight.to_local().numel() for weight in weights) / sum(
        weight.numel() for weight in weights
    )
    return share, weights[0].device_mesh.mesh[:, rank % 2].tolist()


def test_neighbours_share_a_copy_of_the_weights(on_ranks):
    shares, groups = zip(*on_ranks(held, ranks=4), strict=True)
    assert shares == pytest.approx([0.5] * 4, abs=0.05)
    assert groups == ([0, 2], [1, 3], [0, 2], [1, 3])


def learned_and_resumed(rank: int, folder: Path) -> tuple[list[list[dict[str, float]]], object]:
    trainings = [
        HYBRID,
        replace(HYBRID, accumulate=2, clip=0.1, optimizer="lamb", ema=0.9, log_layers_every=1),
        replace(
            HYBRID, reshard_after_forward=False, activation_checkpointing=1, deterministic=True
        ),
    ]
    again = resumed(rank, Forgetful(), [replace(HYBRID, ema=0.9)], 4, folder)
    return curves(rank, Decoded(), trainings, 4), again


@pytest.mark.long
def test_four_ranks_in_two_groups_learn_what_one_learns(on_ranks, tmp_path):
    rank_0, *_ = on_ranks(learned_and_resumed, tmp_path, ranks=4)
    found, [(uninterrupted, reports)] = rank_0
    trainings = [
        HYBRID,
        replace(HYBRID, accumulate=2, clip=0.1, optimizer="lamb", ema=0.9, log_layers_every=1),
        HYBRID,
    ]
    for training, of_four in zip(trainings, found, strict=True):
        assert losses(of_four) == pytest.approx(losses(learned(Decoded(), training)), abs=1e-9)
    assert reports == uninterrupted


OTHERS = (
    Training("fsdp", "64-true"),
    Training("ddp", "64-true"),
    Training("fsdp", "64-true", tensor_parallel=2),
)


def moved(rank: int, folder: Path) -> list[list[dict[str, float]]]:
    """Return the reports of trainings that change their layout after the first epoch."""
    results = []
    for number, other in enumerate(OTHERS):
        for start_with, go_on_with in ((HYBRID, other), (other, HYBRID)):
            place = folder / f"{number}-{start_with.strategy}-{start_with.shard_ranks}"
            alone = Worker.alone(until=1, folder=place, training=start_with)
            worker = replace(alone, rank=rank, world_size=4, total=2)
            Deep().train(worker)
            start = shared(worker.reports[-1].checkpoint, 4)
            order = {"order": 2, "first": 2, "until": 2, "start": start}
            Deep().train(replace(worker, training=go_on_with, **order))
            results.append(curve(worker))
    return results


@pytest.mark.long
def test_checkpoints_go_on_in_other_layouts(on_ranks, tmp_path):
    alone = losses(learned(Deep(), HYBRID, until=2))
    for found in on_ranks(moved, tmp_path, ranks=4)[0]:
        assert losses(found) == pytest.approx(alone, abs=1e-9)
