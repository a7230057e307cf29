"""Batch norms that would see one sample. If these fail, a trial ends hours in, in torch's words.

Axes: N samples, B samples of a batch.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from tasks import Normed, learned, runs_of
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.task import Task
from trainables.trainer.fit import prepare

ALONE = "leaves a batch norm a micro-batch of one sample, which has no variance; choose"


@dataclass(frozen=True)
class Flat(Task):
    """A task with batch norm over samples only; memory holds `fits` of them."""

    lr: float = 0.05
    batch: int = 8
    samples: int = 32
    fits: int = 99

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

    def load_data(self) -> Data:
        x_NF = torch.randn(self.samples, 3, generator=torch.Generator().manual_seed(1))
        columns = (x_NF, x_NF.sum(dim=1, keepdim=True))
        return Data(Tensors(*columns), Tensors(*columns))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        if torch.is_grad_enabled() and len(batch[0]) > self.fits:
            raise torch.OutOfMemoryError(f"{len(batch[0])} samples")
        return (model(batch[0]) - batch[1]).square()


def refusal_of(task: Task, worker: Worker) -> str:
    """Return why training was refused before any update."""
    try:
        with prepare(task, worker):
            return "nothing"
    except ValueError as error:
        return str(error)


def test_a_last_batch_of_one_sample_is_refused_before_the_first_update():
    text = refusal_of(Flat(samples=33), Worker.alone())
    assert text == (
        f"the last batch of an epoch (33 samples by 8 leave 1) {ALONE} another batch or "
        "Data(..., drop_last=True)"
    )
    assert refusal_of(Flat(samples=34), Worker.alone()) == "nothing"


def test_a_last_batch_that_is_not_full_can_be_left_out():
    data = replace(Flat(samples=33).load_data(), drop_last=True)

    @dataclass(frozen=True)
    class Dropping(Flat):
        def load_data(self) -> Data:
            return data

    assert list(map(len, data.batches(torch.arange(33), 8))) == [8, 8, 8, 8]
    assert list(map(len, data.batches(torch.arange(33), 34))) == [33]
    worker = Worker.alone()
    Dropping(samples=33).train(worker)
    assert len(worker.reports) == 1


def test_a_sample_that_has_places_is_batch_enough_and_leaves_no_trace_of_the_trial():
    with prepare(Normed(batch=1), Worker.alone()) as session:
        norm = session.passes.unwrapped_model[3]
        assert norm.num_batches_tracked == 0
        assert norm.running_mean.eq(0).all()


def test_micro_batches_that_memory_makes_too_small_are_told_when_it_does():
    worker = Worker.alone()
    with pytest.raises(ValueError, match="a batch of 8 in 8 micro-batches each") as caught:
        Flat(fits=1).train(worker)
    assert f"{ALONE} another batch or a smaller training.accumulate" in str(caught.value)


def on_ranks(rank: int) -> tuple[list[str], list[list[dict[str, float]]]]:
    cases = [
        (Flat(batch=3), Training("ddp")),
        (Flat(batch=8), Training("ddp", accumulate=4)),
        (Flat(samples=35), Training("fsdp")),
        (Flat(samples=33), Training("local_sgd")),  # rank 1 has nothing, and a stand-in for it
        (Normed(batch=3), Training("fsdp")),
    ]
    texts = [
        refusal_of(task, replace(Worker.alone(training=training), rank=rank, world_size=2))
        for task, training in cases
    ]
    together = (Flat(batch=3), Training("ddp", "64-true", sync_batchnorm=True))
    return texts, runs_of(rank, [together], 2)


def test_ranks_whose_shares_come_to_one_sample_are_refused_alike(on_two_ranks):
    (texts, [reports]), (others, _) = on_two_ranks(on_ranks)
    assert texts == others
    synchronized = "training.sync_batchnorm: true"
    ways = "another batch or fewer ranks"
    ends = "another batch or Data(..., drop_last=True) or fewer ranks"
    assert texts == [
        f"a batch of 3 over 2 ranks {ALONE} {ways} or {synchronized}",
        f"a batch of 8 over 2 ranks in 4 micro-batches each {ALONE} {ways} or a smaller "
        f"training.accumulate or {synchronized}",
        "the last batch of an epoch (35 samples by 8 leave 3) over 2 ranks "
        f"{ALONE} {ends} or {synchronized}",
        f"the last batch of an epoch (33 samples by 8 leave 1) over 2 ranks {ALONE} {ends}",
        "nothing",
    ]
    exact = learned(Flat(batch=3), Training(precision="64-true"))
    for name in ("train/loss", "val/loss"):
        assert [seen[name] for seen in reports] == pytest.approx([seen[name] for seen in exact])
