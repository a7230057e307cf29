"""DeepSpeed's ZeRO. If these fail, its models learn something different from what it says, or other
strategies cannot load its checkpoints.

DeepSpeed does not support 64 bits, so the comparison with one process is in 32 bits.
"""

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import Deep, Forgetful, Generating, Headed, Penalized, losses, refusals, resumed, shared
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.checkpoints.snapshot import take
from trainables.combinations import check
from trainables.parallel.agreement import UnequalUse
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.worker import LocalLink

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        find_spec("deepspeed") is None, reason="needs DeepSpeed: pip install 'hposvc[deepspeed]'"
    ),
]

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


@dataclass(frozen=True)
class Lasting(Deep):
    """An optimizer that looks at whole weights."""

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adafactor(model.parameters())


def of(rank: int, training: Training, folder: Path | None = None, **options: Any) -> Worker:
    """Return the worker of this rank of two."""
    worker = Worker.alone(until=2, folder=folder, training=training)
    return replace(worker, rank=rank, world_size=2, total=4, **options)


def state_of(task: Task, worker: Worker) -> dict[str, Tensor]:
    """Return the state with which an order begins."""
    with prepare(task, worker) as session:
        return {name: tensor.clone() for name, tensor in take(session.state).tensors.items()}


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


def refused(rank: int) -> str:
    with pytest.raises(ValueError, match="the optimizer is") as caught:
        Lasting().train(of(rank, ZERO[2]))
    return str(caught.value)


def everything(rank: int, folder: Path) -> dict[str, Any]:
    """Run all cases on two ranks at once: a process needs seconds to import DeepSpeed."""
    again = [replace(training, optimizer="adamw", clip=0.1) for training in ZERO.values()]
    return {
        "resumed": resumed(rank, Wide(dropout=0.2), again, 2, folder / "resumed"),
        "kept": kept_by_each(rank, folder / "kept"),
        "amid": amid(rank, folder / "amid"),
        "refused": refused(rank),
    }


@pytest.fixture(scope="module")
def seen(on_two_ranks, tmp_path_factory):
    """Return the results of both ranks."""
    return on_two_ranks(everything, tmp_path_factory.mktemp("deepspeed"))


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


def test_an_optimizer_that_needs_whole_weights_is_refused(seen):
    assert (
        "the optimizer is Adafactor, but deepspeed's weights are flat parts" in seen[0]["refused"]
    )


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
