"""Equal bits in every run. If these fail, nobody can repeat a trial, or say what a kill changed.

Axes: N samples, 1 channel, H by W pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import shared
from torch import Tensor, nn

from trainables import Saved, Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.order import Order
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.worker import LocalLink

STEPS = 3
Options = Mapping[str, Any]
Curve = list[tuple[float | None, ...]]  # each step's losses
# An uninterrupted run, its repetition, and the runs resumed from each checkpoint.
Story = tuple[Curve, Curve, dict[tuple[int, int], Curve]]

ON_TWO = [{"strategy": name} for name in ("ddp", "fsdp", "zero1", "local_sgd")]
# What three add up depends on the order.
ON_THREE = [{"strategy": "ddp"}, {"strategy": "ddp", "sync_batchnorm": True}, {"strategy": "fsdp"}]


@dataclass(frozen=True)
class Pictures(Task):
    """A task: which of two halves is brighter, by a small convolutional network with dropout."""

    lr: float = 0.02
    batch: int = 8
    masks: list[list[bool]] = field(default_factory=list)  # what dropout left, pass by pass

    def build_model(self) -> nn.Module:
        layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))
        model = nn.Sequential(nn.Dropout(0.3), *layers, nn.Flatten(), nn.Linear(16, 2))
        model[0].register_forward_hook(self._look)
        return model

    def _look(self, dropout: nn.Module, _: object, left: Tensor) -> None:
        if dropout.training:
            self.masks.append((left != 0).flatten().tolist())

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_N1HW = torch.randn(45, 1, 6, 6, generator=generator)
        y_N = (x_N1HW[..., :3].sum(dim=(1, 2, 3)) > x_N1HW[..., 3:].sum(dim=(1, 2, 3))).long()
        return Data(Tensors(x_N1HW[:36], y_N[:36]), Tensors(x_N1HW[36:], y_N[36:]))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_N1HW, y_N = batch
        return nn.functional.cross_entropy(model(x_N1HW), y_N, reduction="none")


def curve(worker: Worker) -> Curve:
    """Return rank 0's losses; the others report nothing."""
    losses = ("train/loss", "val/loss")
    return [tuple(map(report.metrics.get, losses)) for report in worker.reports if report.metrics]


def trained(worker: Worker, order: int, start: Saved | None = None) -> Worker:
    """Train an order, from a checkpoint or from scratch."""
    first = 1 if start is None else start.step + 1
    own = replace(worker, order=order, first=first, start=start, link=LocalLink())
    torch.rand(order)  # what was drawn before must not matter
    Pictures().train(own)
    return own


def story(rank: int, ranks: int, folder: Path, options: Options) -> Story:
    """Train with checkpoints after every fourth update; a step has five."""
    worker = Worker.alone(
        until=STEPS, folder=folder, training=Training(deterministic=True, **options)
    )
    worker = replace(worker, rank=rank, world_size=ranks, every=Period(updates=4))
    uninterrupted, again = trained(worker, 1), trained(worker, 2)
    starts: list[Saved] = shared(uninterrupted.link.kept, ranks)
    rests = {
        start.position: curve(trained(worker, order, start))
        for order, start in enumerate(starts, start=3)
    }
    return curve(uninterrupted), curve(again), rests


def stories(rank: int, ranks: int, folder: Path, each: list[Options]) -> list[Story]:
    return [
        story(rank, ranks, folder / f"{number}", options) for number, options in enumerate(each)
    ]


def expect_the_same(found: Story, of: Options) -> None:
    uninterrupted, again, rests = found
    assert len(uninterrupted) == STEPS
    assert again == uninterrupted, of
    assert list(rests) == [(0, 4), (1, 3), (2, 2)]
    for (step, within), rest in rests.items():
        assert rest == uninterrupted[step:], f"{of}, from {within} updates after step {step}"


def test_one_rank_gives_the_same_bits_twice_and_from_each_of_its_checkpoints(tmp_path):
    options = {"strategy": "single", "accumulate": 2}
    expect_the_same(story(0, 1, tmp_path, options), options)


@pytest.mark.full
@pytest.mark.parametrize(
    ("ranks", "options"),
    [(2, ON_TWO), (3, ON_THREE)],
    ids=["two", "three"],
)
def test_ranks_give_the_same_bits_twice_and_from_each_of_their_checkpoints(
    on_ranks, tmp_path, ranks, options
):
    """In peers other bits follow after a kill within a step; on three ranks forever."""
    results = on_ranks(stories, ranks, tmp_path, options, ranks=ranks)[0]
    for result, of in zip(results, options, strict=True):
        expect_the_same(result, of)


def masks(rank: int, ranks: int) -> list[list[bool]]:
    """Return the mask that a rank's dropout applied in each pass."""
    task, worker = Pictures(), Worker.alone(until=2, training=Training("ddp", deterministic=True))
    task.train(replace(worker, rank=rank, world_size=ranks))
    return task.masks


def test_each_rank_draws_its_own_numbers_in_each_step(on_two_ranks):
    """Peers: ranks with equal masks, which act like one rank with half of the batch."""
    drawn = [mask for rank_masks in on_two_ranks(masks, 2) for mask in rank_masks]
    assert len(drawn) == 2 * 2 * 5
    assert len({tuple(mask[:72]) for mask in drawn}) == len(drawn)


TELLS = "def tells(params, worker): worker.report(1, {'seed': worker.seed})"


def test_each_trial_has_a_seed_of_its_own_in_all_its_orders(tmp_path):
    (tmp_path / "tells.py").write_text(TELLS)

    def seed(sweeps: int, trial: str, order: int) -> float:
        name = f"{tmp_path / 'tells.py'}:tells"
        place = SlotConfig(name, Training(), ("seed",), 1, 1, sweeps, tmp_path / "sweep")
        task, link = Assignment(Order(order, trial, {}, None, 1, 1, ())), LocalLink()
        assert carry_out(place, task, 0, link).kind == "ended"
        return link.reports[0].metrics["seed"]

    assert seed(0, "t0001", 1) == seed(0, "t0001", 9)
    assert len({seed(sweep, f"t{n:04d}", 1) for sweep in range(3) for n in range(1, 4)}) == 9
