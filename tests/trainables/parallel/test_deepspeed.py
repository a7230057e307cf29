"""DeepSpeed's ZeRO. If these fail, its models learn something different from what it says, or other
strategies cannot load its checkpoints.

DeepSpeed does not support 64 bits, so the comparison with one process is in 32 bits.
"""

import gc
import os
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
import torch.distributed as dist
from tasks import (
    Deep,
    Forgetful,
    Generating,
    Headed,
    Penalized,
    learned,
    refusals,
    resumed,
    runs_of,
)
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.checkpoints.snapshot import take
from trainables.combinations import check
from trainables.data import Data, Tensors
from trainables.parallel.agreement import UnequalUse
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.worker import Diverged, LocalLink

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        find_spec("deepspeed") is None, reason="needs DeepSpeed: pip install 'hposvc[deepspeed]'"
    ),
]

CLOSE = 2e-6  # of losses near 3, after three epochs in 32 bits
STAGES = (1, 2, 3)
ZERO = {stage: Training("deepspeed", zero_stage=stage) for stage in STAGES}


@dataclass(frozen=True)
class Wide(Forgetful):
    """A task with a layer too large to stay whole in stage 3, odd sizes, and frozen weights."""

    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        first, second = nn.Linear(3, 331), nn.Linear(331, 331)
        first.weight.requires_grad_(False)
        return nn.Sequential(first, nn.Tanh(), nn.Dropout(self.dropout), second, nn.Linear(331, 1))


class Alternating(nn.Module):
    """A task that uses its second layer in every other pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.passes = nn.Linear(3, 3), nn.Linear(3, 3), 0
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        x = self.first(x).tanh()
        return self.head(self.second(x) if self.passes % 2 else x)


@dataclass(frozen=True)
class Partial(Deep):
    """A task in which some updates skip some weights."""

    def build_model(self) -> nn.Module:
        return Alternating()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr)


@dataclass(frozen=True)
class Spoiled(Deep):
    """A task in which a single sample has no finite loss."""

    def load_data(self) -> Data:
        data = super().load_data()
        x, y, counts = (column.clone() for column in data.train.columns)
        y[4, 0] = torch.inf
        return Data(Tensors(x, y, counts), data.validation)


@dataclass(frozen=True)
class Lasting(Deep):
    """An optimizer that looks at whole weights."""

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adafactor(model.parameters())


ADAMW = {"optimizer": "adamw", "schedule": "cosine", "layer_decay": 0.8}
RUNS: list[tuple[Task, Training]] = [
    *((Deep(), ZERO[stage]) for stage in STAGES),
    *((Deep(), replace(ZERO[stage], accumulate=2, clip=0.1, **ADAMW)) for stage in STAGES),
    *((Deep(), replace(ZERO[stage], accumulate=2, cpu_offload=True, clip=2.0)) for stage in STAGES),
    *((Deep(batch=1), ZERO[stage]) for stage in STAGES),
    *((Partial(), ZERO[stage]) for stage in STAGES),
    (Wide(), replace(ZERO[3], activation_checkpointing=1)),
]


def of(rank: int, training: Training, folder: Path | None = None, **options: Any) -> Worker:
    """Return the worker of this rank of two."""
    worker = Worker.alone(until=2, folder=folder, training=training)
    return replace(worker, rank=rank, world_size=2, total=4, **options)


def shared(value: Any) -> Any:
    """Broadcast rank 0's value."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def state_of(task: Task, worker: Worker) -> dict[str, Tensor]:
    """Return the state with which an order begins."""
    with prepare(task, worker) as session:
        return {name: tensor.clone() for name, tensor in take(session.state).tensors.items()}


def losses(reports: list[dict[str, float]]) -> list[float]:
    return [report[name] for report in reports for name in ("train/loss", "val/loss")]


def kept_by_each(rank: int, folder: Path) -> dict[str, Any]:
    """Save with each stage; resume that with other strategies and other stages."""
    results = {}
    for stage, training in ZERO.items():
        worker = of(rank, training, folder=folder / f"{stage}")
        Wide().train(worker)
        saved = shared(worker.reports[-1].checkpoint)
        start = {"start": saved, "order": 2, "first": 3, "until": 4}
        others = [Training("ddp"), *ZERO.values()]
        results[stage] = saved, [state_of(Wide(), of(rank, other, **start)) for other in others]
    return results


def amid(rank: int, folder: Path) -> list[list[float]]:
    """Return the last step's loss, and again from a checkpoint within that step; on rank 0."""
    worker = of(rank, ZERO[2], folder=folder, every=Period(updates=3))
    Forgetful().train(worker)
    start = shared(worker.link.kept[-1] if rank == 0 else None)
    again = replace(worker, order=2, first=start.step + 1, start=start, link=LocalLink())
    Forgetful().train(again)
    return [
        [report.metrics["train/loss"] for report in run.reports[-1:] if report.metrics]
        for run in (worker, again)
    ]


def held(rank: int, training: Training) -> dict[str, int]:
    """Return a rank's count of numbers after an epoch, and of models after the order."""
    with prepare(Wide(), of(rank, training)) as session:
        session.train_epoch(1)
        flats = session.strategy.state.partitions.flats
        model = ref(session.passes.unwrapped_model)
        weights = sum(map(torch.numel, session.passes.unwrapped_model.parameters()))
        counts = {"flat": sum(map(torch.numel, flats)), "weights": weights}
    del session, flats
    gc.collect()
    return counts | {"models": int(model() is not None)}


def spoiled(rank: int, training: Training) -> tuple[list[float], str]:
    """Return the losses without the bad updates, and how an order that takes them ends."""
    worker = of(rank, training, nan="skip")
    Spoiled().train(worker)
    losses = [report.metrics["val/loss"] for report in worker.reports if report.metrics]
    try:
        Spoiled().train(of(rank, training, order=2))
    except Diverged as error:
        return losses, str(error)
    return losses, "it did not end"


def refused(rank: int) -> str:
    with pytest.raises(ValueError, match="the optimizer is") as caught:
        Lasting().train(of(rank, ZERO[2]))
    return str(caught.value)


def everything(rank: int, folder: Path) -> dict[str, Any]:
    """Run all cases on two ranks at once: a process needs seconds to import DeepSpeed."""
    mixed = [replace(training, precision="bf16-mixed") for training in ZERO.values()]
    again = [replace(training, optimizer="adamw", clip=0.1) for training in ZERO.values()]
    return {
        "runs": runs_of(rank, RUNS, 2),
        "mixed": runs_of(rank, [(Deep(), options) for options in mixed], 2),
        "resumed": resumed(rank, Wide(dropout=0.2), again, 2, folder / "resumed"),
        "kept": kept_by_each(rank, folder / "kept"),
        "amid": amid(rank, folder / "amid"),
        "held": [held(rank, training) for training in ZERO.values()],
        "spoiled": [spoiled(rank, training) for training in ZERO.values()],
        "refused": refused(rank),
        "local_rank": "LOCAL_RANK" in os.environ,
        "built": [name for name in sys.modules if "shm_comm" in name],
    }


@pytest.fixture(scope="module")
def seen(on_two_ranks, tmp_path_factory):
    """Return the results of both ranks."""
    return on_two_ranks(everything, tmp_path_factory.mktemp("deepspeed"))


def test_two_ranks_learn_what_one_learns(seen):
    for (task, training), reports in zip(RUNS, seen[0]["runs"], strict=True):
        expected = learned(task, training)
        assert losses(reports) == pytest.approx(losses(expected), abs=CLOSE), training
        for name in ("train/grad_norm", "train/clip_fraction"):
            values = [report.get(name, 0.0) for report in reports]
            assert values == pytest.approx(
                [metrics.get(name, 0.0) for metrics in expected], rel=1e-5
            )


def test_bf16_mixed_learns_nearly_the_same_with_weights_in_32_bits(seen):
    expected = losses(learned(Deep(), Training(precision="bf16-mixed")))
    exact = losses(learned(Deep(), Training()))
    for reports in seen[0]["mixed"]:
        assert losses(reports) == pytest.approx(expected, abs=0.05)
        assert losses(reports) != pytest.approx(exact, abs=CLOSE)


def test_a_resumed_trial_goes_on_bit_by_bit(seen):
    for uninterrupted, resumed_reports in seen[0]["resumed"]:
        assert losses(resumed_reports) == losses(uninterrupted)
    before, after = seen[0]["amid"]
    assert before
    assert before == after


def test_what_it_saved_is_whole_and_every_strategy_and_stage_goes_on_from_it(seen):
    expected = state_of_one_process()
    for stage, (saved, others) in seen[0]["kept"].items():
        begun = replace(Worker.alone(until=4), start=saved, order=2, first=3, total=4)
        state = state_of(Wide(), begun)
        assert state.keys() == expected.keys(), stage
        for name, value in state.items():
            assert torch.allclose(value, expected[name], rtol=1e-4, atol=1e-5), name
        for other in others:
            assert other.keys() == state.keys()
            assert all(torch.equal(value, state[name]) for name, value in other.items()), stage


def state_of_one_process() -> dict[str, Tensor]:
    """Return the state of a single process after the same two epochs."""
    worker = replace(Worker.alone(until=2), total=4)
    with prepare(Wide(), worker) as session:
        session.run()
        return {name: tensor.clone() for name, tensor in take(session.state).tensors.items()}


def test_each_rank_keeps_half(seen):
    learning = 331 + 331 * 331 + 331 + 331 + 1
    total = 3 * 331 + learning
    for rank in seen:
        for stage, sizes in zip(STAGES, rank["held"], strict=True):
            assert sizes["flat"] == pytest.approx(learning / 2, abs=8), stage
        assert [sizes["weights"] for sizes in rank["held"][:2]] == [total, total]
        assert rank["held"][2]["weights"] <= total - 331 * 331


def test_bad_updates_are_left_out_or_end_the_trial(seen):
    worker = replace(Worker.alone(until=2), nan="skip", total=4)
    Spoiled().train(worker)
    expected = [report.metrics["val/loss"] for report in worker.reports]
    for losses, ending in seen[0]["spoiled"]:
        assert losses == pytest.approx(expected, abs=CLOSE)
        assert "a gradient is not finite" in ending


def test_an_optimizer_that_needs_whole_weights_is_refused(seen):
    assert (
        "the optimizer is Adafactor, but deepspeed's weights are flat parts" in seen[0]["refused"]
    )


def test_nothing_is_left_behind_and_nothing_was_compiled(seen):
    assert [(rank["local_rank"], rank["built"]) for rank in seen] == [(False, []), (False, [])]
    assert [[sizes["models"] for sizes in rank["held"]] for rank in seen] == [[0, 0, 0]] * 2


def test_a_node_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "trainables.parallel.deepspeed", raising=False)
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hposvc\[deepspeed\]'"):
        import_module("trainables.parallel.deepspeed")


def test_a_way_back_and_a_fourth_stage_are_refused():
    with pytest.raises(ValueError, match=r"failure\.nan is rollback, but deepspeed"):
        check(ZERO[2], 2, "rollback")
    with pytest.raises(ValueError, match=r"zero_stage is 4; give 1 to 3"):
        Training("deepspeed", zero_stage=4)


def test_blocks_that_ranks_use_differently_are_refused_and_named(on_two_ranks):
    """Gradients of different weights were added in stages 1 and 2; stage 3 waited forever."""
    runs = [(Headed(), ZERO[2]), (Headed(), ZERO[3]), (Headed(way="more"), ZERO[3])]
    runs.append((Generating(), ZERO[3]))
    for messages in on_two_ranks(refusals, runs, UnequalUse):
        assert all("training.strategy is deepspeed" in message for message in messages)
        assert "rank 0 had the gradient of heads.1.bias, where rank 1" in messages[0]
        assert "rank 0 called heads.1, where rank 1 called heads.0" in messages[1]
        assert "rank 0 called heads.1, where rank 1 ended its pass" in messages[2]
        assert "rank 0 ended its pass, where rank 1 called" in messages[3]


def test_gradients_within_the_losses_are_refused(on_two_ranks):
    adversarial = Penalized(adversarial=True)
    runs = [(adversarial, ZERO[1]), (adversarial, ZERO[2]), (Penalized(), ZERO[3])]
    for messages in on_two_ranks(refusals, runs, ValueError):
        assert all("compute_losses computes gradients itself" in message for message in messages)
