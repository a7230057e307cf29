"""Ranks training alone for a while. If these fail, they drift apart for good, or wait."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.distributed as dist
from tasks import Deep, curves, learned, losses
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch
from trainables.parallel.local_sgd import LocalSgd
from trainables.randomness import derive, permutation, seed_all

EXACT = Training("local_sgd", "64-true")


@dataclass(frozen=True)
class Plain(Deep):
    """A task with plain SGD; memory holds `fits` samples at a time on rank 1."""

    fits: int = 99

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        if torch.is_grad_enabled() and len(batch[0]) > self.fits and dist.get_rank() == 1:
            raise torch.OutOfMemoryError(f"{len(batch[0])} samples")
        return super().compute_losses(model, batch)


def by_definition(task: Plain, every: int) -> list[float]:
    """Return val/loss of two models averaged after so many updates, and after each epoch."""
    models, losses = [], []
    for _ in range(2):
        seed_all(derive(0, "model"))
        models.append(task.build_model().double())
    data = task.load_data()
    optimizers = [task.build_optimizer(model) for model in models]
    for epoch in range(1, 4):
        batches = permutation(derive(0, "order", epoch), 23).split(task.batch)
        for number, at_B in enumerate(batches, 1):
            for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                optimizer.zero_grad()
                task.compute_losses(model, data.train.batch(at_B[rank::2])).mean().backward()
                optimizer.step()
            if number % every == 0 or number == len(batches):
                average(models)
        validation = data.validation.batch(torch.arange(7))
        losses.append(task.compute_losses(models[0], validation).mean().item())
    return losses


@torch.no_grad()
def average(models: list[nn.Module]) -> None:
    for weights in zip(*(model.parameters() for model in models), strict=True):
        mean = sum(weights) / len(weights)
        for weight in weights:
            weight.copy_(mean)


def test_an_average_after_each_update_is_one_process_and_a_rarer_one_its_definition(on_two_ranks):
    trainings = [
        replace(EXACT, sync_every=1),
        replace(EXACT, sync_every=1, accumulate=2),
        replace(EXACT, sync_every=3),
        replace(EXACT, accumulate=2),
    ]
    results, _ = on_two_ranks(curves, Plain(), trainings, 2)
    alone = losses(learned(Plain(), Training(precision="64-true")))
    for reports in results[:2]:
        assert losses(reports) == pytest.approx(alone, abs=1e-12)
    for reports, every in zip(results[2:], (3, 8), strict=True):
        expected = by_definition(Plain(), every)
        assert [seen["val/loss"] for seen in reports] == pytest.approx(expected, abs=1e-12)


def alone(rank: int) -> list[object]:
    """Let rank 1 reduce a total and run out of memory while rank 0 does neither."""
    worker = replace(Worker.alone(until=1, training=EXACT), rank=rank, world_size=2)
    total = torch.empty(2)
    if rank == 1:
        total = LocalSgd(worker).reduce_loss_sum(torch.tensor([3.0, 2.0]), nn.Identity())
    halved = curves(rank, Plain(fits=1), [replace(EXACT, sync_every=3)], 2)
    return [total.tolist(), halved]


def test_a_rank_that_runs_out_of_memory_halves_alone_and_learns_the_same(on_two_ranks):
    (_, (halved,)), (total, _) = on_two_ranks(alone)
    assert total == [6.0, 4.0]
    assert [seen["train/accumulate"] for seen in halved] == [1.0] * 3  # rank 0's
    expected = by_definition(Plain(), 3)
    assert [seen["val/loss"] for seen in halved] == pytest.approx(expected, abs=1e-12)
