"""If these fail, trials that cannot train at once do, or their users are not told why they can't.

Axes: N samples, B samples of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from small import EXACT, Images, Small, finish, worker
from torch import Tensor, nn

from trainables.data import Batch as Samples
from trainables.data import Data, MapDataset, Tensors
from trainables.vmapped.batch import Batch
from trainables.vmapped.refusals import Unbatchable


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (Small(), Small(width=7), r"0.weight is \(7, 4\).*\(6, 4\).*fields that differ are width"),
        (Small(), Small(batch=4), "field batch is 4, and 8"),
        (Small(), Small(kind="adam"), "optimizer is Adam, .* AdamW.* have one kind"),
        (Small(kind="sgd"), Small(kind="nesterov"), "or another variant"),
        (Small(), Images(), "it is a Images, the others are Small"),
    ],
)
def test_trials_of_other_shapes_are_refused_by_name(first, second, said):
    with Batch(2) as batch:
        batch.add(first, worker(until=2, seed=1))
        with pytest.raises(Unbatchable, match=said):
            batch.add(second, worker(until=2, seed=2))
        finish(batch)  # the other is none the worse


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("optimizer", "lars", "training.optimizer is lars; .* know task or sgd or adamw"),
        ("accumulate", 2, "training.accumulate is 2; .* know 1"),
        ("ema", 0.9, "training.ema is 0.9; .* know none"),
        ("precision", "16-mixed", "training.precision is 16-mixed"),
    ],
)
def test_options_that_a_batch_cannot_do_are_refused_by_name(option, value, said):
    training = replace(EXACT, **{option: value})
    with Batch(2) as batch, pytest.raises(Unbatchable, match=said):
        batch.add(Small(), worker(until=1, seed=1, training=training))


def test_options_that_all_must_share_are_refused_where_they_differ():
    with Batch(2) as batch:
        batch.add(Small(), worker(until=1, seed=1))
        training = replace(EXACT, deterministic=True)
        with pytest.raises(Unbatchable, match=r"training.deterministic is true, and false in"):
            batch.add(Small(), worker(until=1, seed=2, training=training))


@dataclass(frozen=True)
class _Sloped(Small):
    slope: float = 0.1

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.LeakyReLU(self.slope))


@dataclass(frozen=True)
class _Masked(Small):
    """As many losses as the data say."""

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        return super().compute_losses(model, batch)[batch[1] > 0]


@dataclass(frozen=True)
class _Named(Small):
    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        losses = super().compute_losses(model, batch)
        return losses if self.name == "a" else losses.square()


@dataclass(frozen=True)
class _Branching(Small):
    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        losses = super().compute_losses(model, batch)
        return losses if self.decay > 0.05 else losses.square()


@dataclass(frozen=True)
class _Idle(Small):
    def build_model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 3))
        model.spare = nn.Linear(2, 2)
        model.forward = model[0].forward
        return model


@dataclass(frozen=True)
class _Elsewhere(Small):
    def load_data(self) -> Data:
        data = super().load_data()
        columns = data.train.columns
        train = MapDataset(lambda at: tuple(c[at] for c in columns), workers=1, length=23)
        return Data(train, data.validation)


@dataclass(frozen=True)
class _Own(Small):
    def load_data(self) -> Data:
        data = super().load_data()
        moved = data.train.columns[0] + (self.decay > 0)
        return Data(Tensors(moved, data.train.columns[1]), data.validation)


def test_a_module_with_another_value_is_refused_by_name():
    with Batch(2) as batch:
        batch.add(_Sloped(), worker(until=1, seed=1))
        with pytest.raises(Unbatchable, match=r"module 1 has negative_slope 0.2, and 0.1 .* slope"):
            batch.add(_Sloped(slope=0.2), worker(until=1, seed=2))


class _Acting(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


@dataclass(frozen=True)
class _Activated(Small):
    squared: bool = False

    def build_model(self) -> nn.Module:
        act = torch.square if self.squared else torch.relu
        return nn.Sequential(nn.Linear(4, 3), _Acting(act), nn.Linear(3, 3))


def test_a_module_with_another_function_is_refused_too():
    with Batch(3) as batch:
        batch.add(_Activated(), worker(until=1, seed=1))
        batch.add(_Activated(), worker(until=1, seed=3))
        with pytest.raises(Unbatchable, match=r"module 1 has act .*square.*squared"):
            batch.add(_Activated(squared=True), worker(until=1, seed=2))


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([_Masked(), _Masked()], "_Masked.compute_losses cannot be computed for several trials"),
        ([_Named(name="a"), _Named(name="b")], "field name differs among the trials"),
        ([_Branching(decay=0.1), _Branching()], r"it reads decay, of which each has its own"),
        ([_Idle(), _Idle()], "spare.* takes no part in the losses"),
    ],
)
def test_losses_that_cannot_be_computed_at_once_are_refused_by_name(tasks, said):
    with Batch(2) as batch:
        for seed, task in enumerate(tasks):
            batch.add(task, worker(until=1, seed=seed))
        with pytest.raises(Unbatchable, match=said):
            batch.epoch()


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([_Elsewhere()], "train is PrefetchingSource; trials that train at once take Tensors"),
        ([_Own(), _Own(decay=0.1)], "load_data gives other samples in train"),
    ],
)
def test_data_that_are_not_in_memory_or_not_the_same_are_refused(tasks, said):
    with Batch(2) as batch:
        *others, last = [(task, worker(until=1, seed=seed)) for seed, task in enumerate(tasks)]
        for task, trial in others:
            batch.add(task, trial)
        with pytest.raises(Unbatchable, match=said):
            batch.add(*last)


def test_once_all_have_left_a_trial_of_another_shape_may_come():
    with Batch(1) as batch:
        for width in (6, 7):
            trial = worker(until=1, seed=width)
            batch.add(Small(width=width), trial)
            with pytest.raises(ValueError, match="a batch of 1 trials is full"):
                batch.add(Small(), worker(until=1, seed=1))
            finish(batch)
            assert len(trial.reports) == 1
    assert torch.get_default_dtype() == torch.float32
