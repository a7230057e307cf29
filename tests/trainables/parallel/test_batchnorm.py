"""Batch norms over the global batch. If these fail, small batches on each rank learn badly.

Axes: N samples, C channels, L places of a sample.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from tasks import curves, learned
from torch import Tensor, nn

from trainables import Training
from trainables.data import Batch, Data, Tensors
from trainables.parallel.batchnorm import CpuBatchNorm, absent, synchronized
from trainables.task import Task

EXACT = Training("ddp", "64-true", sync_batchnorm=True)


@dataclass(frozen=True)
class Normed(Task):
    """Signals of three channels."""

    lr: float = 0.05
    batch: int = 4
    momentum: float | None = 0.1

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv1d(3, 4, 1),
            nn.BatchNorm1d(4, momentum=self.momentum),
            nn.Tanh(),
            nn.Conv1d(4, 4, 1, bias=False),
            nn.BatchNorm1d(4, affine=False),
            nn.Conv1d(4, 1, 1),
        )

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_NCL = torch.randn(30, 3, 5, generator=generator, dtype=torch.float64) * 3 + 1
        y_NL = x_NCL.sum(dim=1)
        return Data(Tensors(x_NCL[:21], y_NL[:21]), Tensors(x_NCL[21:], y_NL[21:]))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_NCL, y_NL = batch
        return (model(x_NCL).squeeze(1) - y_NL).square()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)


TASKS = [
    Normed(batch=7),  # 4 + 3 samples: uneven ranks
    Normed(batch=4),  # 4, 4, 4, 4, 4 and 1: one rank goes without at the end
    Normed(batch=6, momentum=None),  # 3 + 3, and 2 + 1
]
STRATEGIES = ("ddp", "fsdp")


def curves_of(rank: int) -> list[list[dict[str, float]]]:
    trainings = [replace(EXACT, strategy=name) for name in STRATEGIES]
    return [curve for task in TASKS for curve in curves(rank, task, trainings, 2)]


@pytest.mark.full
def test_two_ranks_learn_what_one_does_with_the_whole_batch(on_two_ranks):
    curves, _ = on_two_ranks(curves_of)
    alone = [learned(task, Training(precision="64-true")) for task in TASKS for _ in STRATEGIES]
    for reports, expected in zip(curves, alone, strict=True):
        for name in ("train/loss", "val/loss"):
            assert [seen[name] for seen in reports] == pytest.approx(
                [seen[name] for seen in expected], rel=1e-12
            )


def half(rank: int) -> list[Tensor]:
    norm = synchronized(nn.BatchNorm1d(2))
    assert isinstance(norm, CpuBatchNorm)
    given = torch.tensor([[100.0, 0.5], [101.0, 0.7], [102.0, 1.5]]).bfloat16()
    if rank == 0:
        return [norm(given), norm.running_mean]
    with absent(norm):
        return [norm(given), norm.running_mean]


def test_a_rank_without_samples_changes_no_statistics_and_halves_do_not_round_them(on_two_ranks):
    (normal, mean_0), (_, mean_1) = on_two_ranks(half)
    given = torch.tensor([[100.0, 0.5], [101.0, 0.7], [102.0, 1.5]]).bfloat16()
    alone = nn.BatchNorm1d(2)
    expected = alone(given.float())
    assert normal.dtype == torch.bfloat16
    torch.testing.assert_close(normal.float(), expected, atol=0.02, rtol=0)
    torch.testing.assert_close(mean_0, alone.running_mean)
    torch.testing.assert_close(mean_1, mean_0)
