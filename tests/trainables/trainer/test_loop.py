"""Axes: N samples, B samples of a batch, T tokens of a sample."""

import gc
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.randomness import derive, permutation, seed_all
from trainables.runtime import process_state
from trainables.task import Task

LEARNED = ("train/loss", "val/loss")
PRECISIONS = ["32-true", "64-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class Tokens(Task):
    """A task: predict a number for each token; samples hold 1 to 5, batches 5, 5, 5, 5 and 3."""

    batch: int = 5
    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(8, 1))

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_NTF = torch.randn(30, 5, 3, generator=generator, dtype=torch.float64)
        y_NT = x_NTF.sum(dim=2)
        counts_NT = torch.arange(5) <= (torch.arange(30) * 7 % 5)[:, None]
        columns = (x_NTF, y_NT, counts_NT)
        return Data(Tensors(*(c[:23] for c in columns)), Tensors(*(c[23:] for c in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, counts_BT = batch
        return (model(x_BTF).squeeze(2) - y_BT)[counts_BT].square()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9)


@dataclass(frozen=True)
class Constant(Tokens):
    """A model that gives 0 for targets that 16 bits would round."""

    lr: float = 0.0
    target: float = 1.0

    def build_model(self) -> nn.Module:
        model = nn.Linear(3, 1)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        return model

    def load_data(self) -> Data:
        columns = Tensors(torch.randn(5, 3), torch.full((5, 1), self.target))
        return Data(columns, columns)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch[0]) - batch[1]).abs()


@dataclass(frozen=True)
class Cosine(Tokens):
    def scale_lr(self, progress: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Adam(Tokens):
    dropout: float = 0.2

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.lr)


def curve(worker: Worker) -> list[dict[str, float]]:
    """Return what was learned; speed and memory differ from run to run."""
    return [
        {name: value for name, value in report.metrics.items() if name in LEARNED}
        for report in worker.reports
    ]


def learned(task: Task, until: int = 3, **training: Any) -> list[dict[str, float]]:
    """Return the reports of a single rank."""
    worker = Worker.alone(until=until, training=Training(**training))
    task.train(worker)
    return curve(worker)


def by_definition(epochs: int) -> list[float]:
    """Return val/loss of Tokens by full-batch code: the mean over all tokens of a batch."""
    task = Tokens(lr=0.05)
    seed_all(derive(0, "model"))
    model, data = task.build_model().double(), task.load_data()
    optimizer, losses = task.build_optimizer(model), []
    for epoch in range(1, epochs + 1):
        for at_B in permutation(derive(0, "order", epoch), 23).split(5):
            optimizer.zero_grad()
            task.compute_losses(model, data.train.batch(at_B)).mean().backward()
            optimizer.step()
        validation = data.validation.batch(torch.arange(7))
        losses.append(task.compute_losses(model, validation).mean().item())
    return losses


def ddp_curves(rank: int, task: Task, trainings: list[Training]) -> list[list[dict[str, float]]]:
    """Return the reports of a rank of two under each of the options."""
    results = []
    for training in trainings:
        alone = Worker.alone(until=3, training=training)
        worker = replace(alone, rank=rank, world_size=2)
        task.train(worker)
        results.append(curve(worker))
    return results


def test_an_update_is_that_of_the_mean_loss_over_all_tokens():
    losses = [seen["val/loss"] for seen in learned(Tokens(lr=0.05), precision="64-true")]
    assert losses == pytest.approx(by_definition(3), abs=1e-12)


@pytest.mark.parametrize("accumulate", [2, 3, 7])
def test_accumulation_equals_the_full_batch_with_uneven_tails(accumulate):
    full_batch = learned(Tokens(lr=0.05), precision="64-true")
    parts = learned(Tokens(lr=0.05), precision="64-true", accumulate=accumulate)
    for expected, accumulated in zip(full_batch, parts, strict=True):
        assert accumulated == pytest.approx(expected, abs=1e-12)


SIZES: dict[str, set[int]] = {"train": set(), "validation": set()}


@dataclass(frozen=True)
class Sized(Tokens):
    """Records how many samples it gets at a time; trains on 23, and validates on 7."""

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        SIZES["train" if model.training else "validation"].add(len(batch[0]))
        return super().compute_losses(model, batch)


def sizes(rank: int, accumulate: int) -> dict[str, set[int]]:
    for seen in SIZES.values():
        seen.clear()
    ddp_curves(rank, Sized(), [Training("ddp", accumulate=accumulate)])
    return SIZES


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_rank_evaluates_no_more_samples_at_a_time_than_it_trains_on(on_two_ranks, accumulate):
    for seen in on_two_ranks(sizes, accumulate):
        assert max(seen["validation"]) <= max(seen["train"])


def wrapped_models_left(rank: int) -> int:
    gc.disable()
    ddp_curves(rank, Tokens(), [Training("ddp")])
    return sum(isinstance(item, DistributedDataParallel) for item in gc.get_objects())


def test_the_first_order_of_a_rank_leaves_no_model_behind(on_two_ranks):
    assert on_two_ranks(wrapped_models_left) == [0, 0]


def test_two_ranks_run_at_every_precision_even_where_one_gets_no_sample(on_two_ranks):
    trainings = [Training("ddp", precision) for precision in PRECISIONS]
    rank_0, _ = on_two_ranks(ddp_curves, Tokens(lr=0.01, batch=11), trainings)  # 11, 11, 1
    single, double, bfloat, half = (reports[-1] for reports in rank_0)
    assert single == pytest.approx(double, rel=1e-4)
    assert bfloat == pytest.approx(double, rel=0.05)
    # float16 skips updates until its scale has come down, so it is behind.
    assert double["train/loss"] < half["train/loss"] < rank_0[3][0]["train/loss"]


def test_seeds_give_the_same_curve_and_other_seeds_another():
    def run(seed: int) -> list[dict[str, float]]:
        worker = Worker.alone(until=2, seed=seed)
        Adam(lr=0.01).train(worker)
        return curve(worker)

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_resumed_trial_goes_on_bit_by_bit(tmp_path, precision):
    training = Training(precision=precision)
    uninterrupted = Worker.alone(until=4, folder=tmp_path / "whole", training=training)
    Adam(lr=0.01).train(uninterrupted)
    half = Worker.alone(until=2, folder=tmp_path / "halves", training=training)
    Adam(lr=0.01).train(replace(half, total=4))
    Adam(lr=0.01).train(
        replace(half, order=2, first=3, until=4, total=4, start=half.reports[-1].checkpoint)
    )
    assert curve(half) == curve(uninterrupted)


def test_the_schedule_stretches_over_the_whole_trial_whatever_the_order(tmp_path):
    uninterrupted = Worker.alone(until=4)
    Cosine(lr=0.05).train(uninterrupted)
    rung = replace(Worker.alone(until=1), total=4)
    Cosine(lr=0.05).train(rung)
    assert curve(rung) == curve(uninterrupted)[:1]


def test_a_diverged_trial_reports_that_it_did():
    assert not math.isfinite(learned(Tokens(lr=1e6))[-1]["val/loss"])


def test_training_leaves_the_process_as_it_was():
    before, generator = process_state.baseline(), torch.get_rng_state()
    learned(Tokens(), precision="16-mixed")
    assert process_state.difference(before, process_state.baseline()) == []
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
@pytest.mark.parametrize("target", [1000.25, 70000.0])
def test_targets_are_not_rounded_to_the_format_of_the_weights(precision, target):
    """A search over precisions would prefer the one that rounds the errors away."""
    last = learned(Constant(target=target), precision=precision)[-1]
    assert last["val/loss"] == pytest.approx(target, rel=1e-6)
