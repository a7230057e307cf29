"""If these fail, a schedule-free optimizer's weights are evaluated or saved in the wrong mode."""

import pytest
import torch
from several_optimizers import HalfScheduleFree, ScheduleFree
from tasks import refusals

from trainables import Training, Worker
from trainables.checkpoints.snapshot import take
from trainables.optim.evaluation_mode import evaluation_weights
from trainables.trainer.fit import prepare


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(weight, value) for weight, value in zip(one, other, strict=True)]


@pytest.mark.parametrize(("task", "averaged"), [(ScheduleFree(), 10), (HalfScheduleFree(), 2)])
def test_the_weights_for_evaluation_are_those_of_eval_and_go_without_a_trace(task, averaged):
    with prepare(task, Worker.alone()) as trainer:
        trainer.train_steps(1, 1)
        optimizer, model = trainer.state.optimizer, trainer.state.model
        before = weights(model)
        with evaluation_weights(optimizer, model):
            inside = weights(model)
        assert all(same(before, weights(model)))
        assert same(before, inside) == [False] * averaged + [True] * (10 - averaged)
        part = optimizer.parts[0] if averaged == 2 else optimizer
        part.eval()
        assert all(same(inside, weights(model)))


def test_a_checkpoint_is_of_train_mode():
    with prepare(ScheduleFree(), Worker.alone()) as trainer:
        trainer.train_steps(1, 1)
        saved = take(trainer.state)
        for name, weight in trainer.state.model.named_parameters():
            assert torch.equal(saved.tensors[f"model.{name}"], weight)
            assert not torch.equal(saved.tensors[f"average.{name}"], weight)
        assert trainer.state.optimizer.param_groups[0]["train_mode"]


def test_a_second_average_is_refused():
    with pytest.raises(ValueError, match=r"training\.ema is 0\.9, but .*AdamWScheduleFree"):
        ScheduleFree().train(Worker.alone(training=Training(ema=0.9)))


def test_zero1_is_refused_whose_ranks_have_the_average_of_their_share(on_two_ranks):
    runs = [(HalfScheduleFree(), Training("zero1"))]
    for (message,) in on_two_ranks(refusals, runs, ValueError):
        assert message.startswith("training.strategy is zero1, but the task's optimizer (AdamWSch")
