"""Optimizers that take turns. If these fail, a GAN's networks learn from each other's losses.

Axes: B samples of a batch.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from several_optimizers import Forging
from tasks import Deep, learned, refusals
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Data, MapDataset
from trainables.memory_estimation.fake_step import run_fake_step
from trainables.memory_estimation.memory_tracker import CannotForecast
from trainables.task import Task
from trainables.trainer.fit import prepare

EXACT = Training(precision="64-true")


def by_hand(task: Forging, until: int) -> list[float]:
    """Return each epoch's mean losses of both turns, as a user would write the training."""
    with prepare(task, Worker.alone(until=until, training=EXACT)) as trainer:
        model = trainer.state.model  # with the runtime's first weights and its order of samples
        data, order = trainer.passes.data, []
        original = data.train.batch
        trainer.update.run = lambda at_B: order.append(at_B) or [torch.zeros(2)] * 2
        means = []
        optimizers = task.build_optimizer(model)
        for step in range(1, until + 1):
            order.clear()
            trainer.train_steps(step, step)
            losses: dict[str, list[Tensor]] = {name: [] for name in optimizers}
            for at_B in order:
                for name, optimizer in optimizers.items():
                    model.zero_grad()
                    values = task.compute_turn(name, model, original(at_B))
                    values.mean().backward()
                    optimizer.step()
                    losses[name].append(values.detach())
            means += [torch.cat(values).mean().item() for values in losses.values()]
        return means


def test_each_turn_steps_its_own_weights_as_a_loop_by_hand_does():
    reports = learned(Forging(), EXACT, until=2)
    names = ("train/loss/discriminator", "train/loss/generator")
    found = [metrics[name] for metrics in reports for name in names]
    assert found == pytest.approx(by_hand(Forging(), 2), rel=1e-12)
    for metrics in reports:
        one, two = (metrics[name] for name in names)
        assert metrics["train/loss"] == pytest.approx((2 * one + two) / 3)  # by number of losses


def test_micro_batches_change_nothing_and_halve_in_the_turn_that_does_not_fit():
    whole = learned(Forging(), EXACT)
    for task, options in ((Forging(), {"accumulate": 3}), (Forging(fits=2), {})):
        parts = learned(task, replace(EXACT, **options))
        for metrics, other in zip(parts, whole, strict=True):
            for name in ("train/loss/discriminator", "train/loss/generator", "val/gap"):
                assert metrics[name] == pytest.approx(other[name], rel=1e-9)
    assert parts[-1]["train/accumulate"] == 4


def test_samples_that_processes_load_ahead_serve_every_turn():
    @dataclass(frozen=True)
    class Loaded(Forging):
        def load_data(self) -> Data:
            data = super().load_data()
            columns = data.train.columns
            rows = [tuple(column[at] for column in columns) for at in range(len(data.train))]
            return Data(MapDataset(rows, workers=1), data.validation)

    assert learned(Loaded(), EXACT) == learned(Forging(), EXACT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_layers_every": 2}, r"log_layers_every is 2, but .*takes turns; choose 0"),
        ({"nan": "skip"}, r"^failure\.nan is skip, but .*\(discriminator: SGD, generator: AdamW\)"),
    ],
)
def test_what_turns_do_not_work_with_is_refused(options: dict[str, Any], message: str):
    nan = options.pop("nan", "stop")
    with pytest.raises(ValueError, match=message):
        Forging().train(replace(Worker.alone(training=Training(**options)), nan=nan))


def test_turns_are_refused_by_strategies_that_split_a_step(on_two_ranks):
    runs = [
        (Forging(), Training("fsdp")),
        (Forging(), Training("local_sgd")),
        (Forging(), Training("ddp", static_graph=True)),
    ]
    messages, _ = on_two_ranks(refusals, runs, ValueError)
    assert all("takes turns; choose " in message for message in messages)


def test_a_method_that_is_missing_is_named():
    @dataclass(frozen=True)
    class Speechless(Deep):
        def build_optimizer(self, model: nn.Module) -> Any:
            return {"all": torch.optim.SGD(model.parameters(), lr=0.1)}

    @dataclass(frozen=True)
    class Lossless(Forging):
        def build_optimizer(self, model: nn.Module) -> Any:
            return Task.build_optimizer(self, model)

    with pytest.raises(NotImplementedError, match="Speechless has no compute_turn; write it"):
        Speechless().train(Worker.alone())
    with pytest.raises(NotImplementedError, match="Lossless has no compute_losses; write it"):
        Lossless().train(Worker.alone())


def test_memory_is_measured_and_not_forecast():
    with pytest.raises(CannotForecast, match="take turns, each with a pass; measure instead"):
        run_fake_step(Forging(), Training(), 1, (torch.zeros(2, 3), torch.zeros(2, 2)), gpu=False)
