"""If these fail, layers that are to wait learn from the start, or never."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from tasks import Deep
from torch import nn

from trainables import Training, Worker
from trainables.optim.unfreezing import BEGINS, staged
from trainables.trainer.fit import prepare


@dataclass(frozen=True)
class Staged(Deep):
    """A task whose last layer learns first, and whose first from half of the trial on."""

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = [{"params": list(model.parameters()), "momentum": 0.9}]
        return torch.optim.SGD(staged(model, groups, {"0.*": 0.5, "7.*": 0.0}), lr=self.lr)


def test_a_layer_stands_still_until_its_turn_and_moves_from_then_on():
    worker = Worker.alone(until=4, training=Training(precision="64-true"))
    with prepare(Staged(), replace(worker, total=4)) as session:
        first, last = session.state.model[0].weight, session.state.model[7].weight
        seen = [(first.clone(), last.clone())]
        for step in (1, 2, 3, 4):
            session.train_steps(step, step)
            seen.append((first.clone(), last.clone()))
    still = [torch.equal(before[0], after[0]) for before, after in pairwise(seen)]
    assert still == [True, True, False, False]
    assert not any(torch.equal(a[1], b[1]) for a, b in pairwise(seen))


def test_groups_keep_their_options_and_all_their_weights():
    model = Deep().build_model()
    weights = list(model.parameters())
    groups = [{"params": weights[:3], "lr": 1.0}, {"params": weights[3:], "weight_decay": 0.5}]
    split_groups = staged(model, groups, {"*.bias": 0.25})
    assert sorted(id(weight) for group in split_groups for weight in group["params"]) == sorted(
        map(id, weights)
    )
    assert {group[BEGINS] for group in split_groups} == {0.0, 0.25}
    assert all(("lr" in group) != ("weight_decay" in group) for group in split_groups)


@pytest.mark.parametrize(
    ("begins", "told"),
    [
        ({"nine.*": 0.5}, r"fits no trained weight; there are \w\.\w+, \w\.\w+, "),
        ({"0.*": 1.0}, "below 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(begins, told):
    model = Deep().build_model()
    with pytest.raises(ValueError, match=told):
        staged(model, [{"params": list(model.parameters())}], begins)
