"""Axes: N samples, B samples of a batch, T tokens of a sample."""

import gc
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tasks
import torch
from tasks import Deep, Forgetful, curve, curves, losses
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.randomness import derive, permutation, seed_all
from trainables.runtime import process_state
from trainables.task import Task


@dataclass(frozen=True)
class Constant(Deep):
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
class Cosine(Deep):
    def scale_lr(self, progress: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * progress))


def learned(task: Task, until: int = 3, **training: Any) -> list[dict[str, float]]:
    """Return the reports of a single rank."""
    return tasks.learned(task, Training(**training), until)


def by_definition(epochs: int) -> list[float]:
    """Return val/loss of Deep by full-batch code: the mean over all tokens of a batch."""
    task = Deep(lr=0.05)
    seed_all(derive(0, "model"))
    model, data = task.build_model().double(), task.load_data()
    optimizer, values = task.build_optimizer(model), []
    for epoch in range(1, epochs + 1):
        for at_B in permutation(derive(0, "order", epoch), 23).split(5):
            optimizer.zero_grad()
            task.compute_losses(model, data.train.batch(at_B)).mean().backward()
            optimizer.step()
        validation = data.validation.batch(torch.arange(7))
        values.append(task.compute_losses(model, validation).mean().item())
    return values


def test_an_update_is_that_of_the_mean_loss_over_all_tokens():
    values = [seen["val/loss"] for seen in learned(Deep(lr=0.05), precision="64-true")]
    assert values == pytest.approx(by_definition(3), abs=1e-12)


@pytest.mark.parametrize("accumulate", [2, 3, 7])
def test_accumulation_equals_the_full_batch_with_uneven_tails(accumulate):
    full_batch = learned(Deep(lr=0.05), precision="64-true")
    parts = learned(Deep(lr=0.05), precision="64-true", accumulate=accumulate)
    assert losses(parts) == pytest.approx(losses(full_batch), abs=1e-12)


SIZES: dict[str, set[int]] = {"train": set(), "validation": set()}


@dataclass(frozen=True)
class Sized(Deep):
    """Records how many samples it gets at a time; trains on 23, and validates on 7."""

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        SIZES["train" if model.training else "validation"].add(len(batch[0]))
        return super().compute_losses(model, batch)


def sizes(rank: int, accumulate: int) -> dict[str, set[int]]:
    for seen in SIZES.values():
        seen.clear()
    curves(rank, Sized(), [Training("ddp", accumulate=accumulate)], 2)
    return SIZES


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_rank_evaluates_no_more_samples_at_a_time_than_it_trains_on(on_two_ranks, accumulate):
    for seen in on_two_ranks(sizes, accumulate):
        assert max(seen["validation"]) <= max(seen["train"])


def wrapped_models_left(rank: int) -> int:
    gc.disable()
    curves(rank, Deep(), [Training("ddp")], 2)
    return sum(isinstance(item, DistributedDataParallel) for item in gc.get_objects())


def test_the_first_order_of_a_rank_leaves_no_model_behind(on_two_ranks):
    assert on_two_ranks(wrapped_models_left) == [0, 0]


def test_seeds_give_the_same_curve_and_other_seeds_another():
    def run(seed: int) -> list[dict[str, float]]:
        worker = Worker.alone(until=2, seed=seed)
        Forgetful(lr=0.01).train(worker)
        return curve(worker)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_the_schedule_stretches_over_the_whole_trial_whatever_the_order(tmp_path):
    uninterrupted = Worker.alone(until=4)
    Cosine(lr=0.05).train(uninterrupted)
    rung = replace(Worker.alone(until=1), total=4)
    Cosine(lr=0.05).train(rung)
    assert curve(rung) == curve(uninterrupted)[:1]


def test_training_leaves_the_process_as_it_was():
    before, generator = process_state.baseline(), torch.get_rng_state()
    learned(Deep(), precision="16-mixed")
    assert process_state.difference(before, process_state.baseline()) == []
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
@pytest.mark.parametrize("target", [1000.25, 70000.0])
def test_targets_are_not_rounded_to_the_format_of_the_weights(precision, target):
    """A search over precisions would prefer the one that rounds the errors away."""
    last = learned(Constant(target=target), precision=precision)[-1]
    assert last["val/loss"] == pytest.approx(target, rel=1e-6)


def wsd(folder: Path, *lengths: tuple[int, int]) -> list[dict[str, float]]:
    """Return the reports of orders in a row, each with its last step and the trial's length."""
    reports: list[dict[str, float]] = []
    start, first = None, 1
    training = Training(schedule="wsd", warmup=0.1)
    for order, (until, total) in enumerate(lengths, start=1):
        lone_worker = Worker.alone(until=until, folder=folder, training=training)
        worker = replace(lone_worker, order=order, first=first, total=total, start=start)
        Forgetful().train(worker)
        reports += curve(worker)
        start, first = worker.reports[-1].checkpoint, until + 1
    return reports


def test_a_wsd_trial_made_longer_before_its_decay_learns_as_one_that_was_long_at_once(tmp_path):
    # The warm-up of both is over at step 2.
    longer = wsd(tmp_path / "longer", (2, 20), (7, 10), (20, 20))
    assert longer == wsd(tmp_path / "long", (20, 20))
    rates = [metrics["train/lr"] for metrics in longer]
    assert set(rates[2:16]) == {0.01}
    assert rates[16:] == sorted(rates[16:], reverse=True)
    assert rates[-1] < 0.005


def test_a_wsd_trial_made_longer_after_its_decay_goes_on_at_the_full_rate(tmp_path):
    rates = [metrics["train/lr"] for metrics in wsd(tmp_path, (10, 10), (20, 20))]
    assert rates[9] < 0.005
    assert set(rates[10:16]) == {0.01}
