"""DistributedDataParallel under its options, and with memory running out on one rank only.

If these fail, a sweep on several GPUs learns something different from on one, or hangs.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tasks import Deep, curves, learned, losses
from torch import Tensor, nn
from two_ranks import started

from trainables import Training
from trainables.data import Batch

EXACT = Training("ddp", "64-true")


@dataclass(frozen=True)
class Wide(Deep):
    """A task whose matrix is worth compressing."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 40), nn.Linear(40, 1))


def test_compressed_gradients_learn_nearly_the_same(on_two_ranks):
    trainings = [
        Training("ddp", gradient_compression="fp16"),
        Training("ddp", gradient_compression="fp16", accumulate=2),
        Training("ddp", gradient_compression="powersgd"),
    ]
    results, _ = on_two_ranks(curves, Wide(), trainings, 2)
    alone = losses(learned(Wide(), Training()))
    for reports in results[:2]:
        assert losses(reports) == pytest.approx(alone, rel=1e-3)
    assert losses(results[2]) == pytest.approx(alone, rel=0.1)
    for reports in results:
        assert losses(reports) != losses(learned(Wide(), Training()))


def bf16_refused(rank: int) -> str:
    with pytest.raises(ValueError, match="gradient_compression") as caught:
        curves(rank, Deep(), [Training("ddp", gradient_compression="bf16")], 2)
    return str(caught.value)


def test_a_compression_that_the_ranks_devices_lack_is_refused(on_two_ranks):
    message = "training.gradient_compression is bf16, but only NCCL adds bf16 up, on GPUs; "
    assert on_two_ranks(bf16_refused) == [f"{message}choose fp16 or powersgd"] * 2


@dataclass(frozen=True)
class Buffered(Deep):
    """A task with running means, which DDP broadcasts in forward passes."""

    batch: int = 8
    fits: int = 99  # samples; more do not fit on the last rank

    def build_model(self) -> nn.Module:
        norm = nn.BatchNorm1d(5, momentum=0.5)
        return nn.Sequential(norm.eval(), nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        next(module for module in model.modules() if isinstance(module, nn.BatchNorm1d)).eval()
        if torch.is_grad_enabled() and len(batch[0]) > self.fits and self.is_last():
            raise torch.OutOfMemoryError(f"{len(batch[0])} samples")
        return super().compute_losses(model, batch)

    def is_last(self) -> bool:
        return dist.is_initialized() and dist.get_rank() == dist.get_world_size() - 1


def test_all_ranks_halve_their_micro_batches_where_one_runs_out_of_memory(on_two_ranks):
    small, _ = on_two_ranks(curves, Buffered(fits=1), [EXACT], 2)
    alone = losses(learned(Buffered(), Training(precision="64-true")))
    assert losses(small[0]) == pytest.approx(alone, abs=1e-12)
    assert [report["train/accumulate"] for report in small[0]] == [4.0] * 3


def without_room(rank: int) -> str:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        curves(rank, Buffered(batch=5, fits=0), [EXACT], 2)
    return str(caught.value)


def test_all_ranks_give_up_where_one_sample_does_not_fit(on_two_ranks):
    messages = on_two_ranks(without_room)
    assert messages == ["out of memory: on another rank", "out of memory: 1 samples"]


LATE = """
from dataclasses import dataclass
import torch
import torch.distributed as dist
from torch import nn
from trainables.data import Data, Tensors
from trainables.task import Task

@dataclass(frozen=True)
class Late(Task):
    batch: int = 8

    def build_model(self):
        return nn.Linear(1, 1)

    def load_data(self):
        x_NF = torch.arange(40.0)[:, None] / 40
        return Data(Tensors(x_NF), Tensors(x_NF))

    def compute_losses(self, model, batch):
        if model.training and dist.get_rank() == 1 and self.updates() == 3:
            raise torch.OutOfMemoryError("too much")
        return model(batch[0]).square()

    def updates(self):
        object.__setattr__(self, "count", getattr(self, "count", -1) + 1)
        return self.count
"""


def test_memory_that_runs_out_on_one_rank_later_ends_the_order_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr("trainables.runtime.coordinator.GRACE_S", 1.0)
    (tmp_path / "late.py").write_text(LATE)
    with started(tmp_path, trainable=f"{tmp_path / 'late.py'}:Late", metrics=()) as two:
        reports, end = two.order({})
    assert (reports, end.kind) == ([], "oversize")
    assert "a micro-batch of 4 samples did not fit into memory: too much" in end.message


FAILS = """
import torch
from torch import nn

def train(params, worker):
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    for _ in range(3):
        model(torch.ones(4, 1)).sum().backward()
    raise KeyError("fails")
"""


def test_an_order_that_fails_lets_go_of_its_model_and_group_without_hanging(tmp_path):
    """The model had the last reference: a rank in fifty hung as it was freed, until it stalled."""
    (tmp_path / "fails.py").write_text(FAILS)
    with started(tmp_path, trainable=f"{tmp_path / 'fails.py'}:train", metrics=()) as two:
        assert {two.order({})[1].kind for _ in range(50)} == {"user"}


@dataclass(frozen=True)
class Stacked(Deep):
    """A task with matrices worth compressing, each in its own bucket if buckets are small."""

    def build_model(self) -> nn.Module:
        layers = [nn.Linear(40, 40) for _ in range(3)]
        return nn.Sequential(nn.Linear(3, 40), nn.Tanh(), *layers, nn.Linear(40, 1))


def at_odds(rank: int, training: Training) -> list[float]:
    """Train while rank 0 is late with its callbacks, and rank 1 with a new bucket."""
    exchange = dist.all_reduce

    def late(*args: Any, **options: Any) -> Any:
        comes = threading.current_thread() is threading.main_thread()
        if options.get("async_op") and comes == (rank == 1):
            time.sleep(0.05)
        return exchange(*args, **options)

    dist.all_reduce = late
    try:
        (reports,) = curves(rank, Stacked(), [training], 2, until=1)
        return losses(reports) if rank == 0 else []
    finally:
        dist.all_reduce = exchange


def test_powersgd_exchanges_many_buckets_in_one_order_on_all_ranks(on_two_ranks):
    """In different orders ranks would wait for each other, or add up unrelated values."""
    small = Training("ddp", gradient_compression="powersgd", bucket_cap_mb=0.001)
    reports, _ = on_two_ranks(at_odds, small)
    assert reports == losses(on_two_ranks(curves, Stacked(), [small], 2, 1)[0][0])
