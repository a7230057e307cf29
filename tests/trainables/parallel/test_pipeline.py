"""If this fails, trials whose layers are split among ranks learn differently from one rank.

Axes: B samples, T tokens, F features.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from tasks import Decoded, Deep, Normed, learned, runs_of
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch, Tensors
from trainables.parallel.microbatches import MicroBatches
from trainables.parallel.stages import shard_layers
from trainables.trainer.fit import prepare

EXACT = Training("pipeline", "64-true", accumulate=2)
WHOLE = replace(EXACT, pipeline_schedule="gpipe", accumulate=1)


@dataclass(frozen=True)
class Echo(Deep):
    """A task whose model returns its input noise; the errors are a metric."""

    def build_model(self) -> nn.Module:
        layers = [nn.Linear(3, 3, bias=False) for _ in range(2)]
        for layer in layers:
            nn.init.eye_(layer.weight)
        return nn.Sequential(*layers)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        noise_BTF = torch.rand_like(batch[0])
        return (model(noise_BTF) - noise_BTF).abs()

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        errors = self.compute_losses(model, batch)
        return {"loss": errors, "error": errors.amax(dim=(1, 2))}


RUNS: dict[str, tuple[Deep, Training]] = {
    "interleaved": (
        Deep(),
        replace(WHOLE, pipeline_schedule="interleaved", accumulate=4, clip=0.1),
    ),
    "batch norm": (Normed(), WHOLE),  # which remembers what it has seen, and no more
}


@pytest.fixture(scope="module")
def rank_reports(on_two_ranks: Callable[..., Any]) -> dict[str, list[dict[str, float]]]:
    """Return rank 0's reports of each run, and of the echo."""
    runs = RUNS | {"echo": (Echo(lr=0.0), EXACT)}
    rank_0, rank_1 = on_two_ranks(runs_of, list(runs.values()), 2)
    assert rank_1 == [[{}, {}, {}]] * len(runs)
    return dict(zip(runs, rank_0, strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_with_half_of_the_layers_each_learn_what_one_learns(rank_reports, name):
    for seen, expected in zip(rank_reports[name], learned(*RUNS[name]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


def test_what_a_task_draws_is_the_same_at_both_ends(rank_reports):
    for seen in rank_reports["echo"]:
        assert seen["train/loss"] == seen["val/loss"] == seen["val/error"] == 0


def test_four_stages_learn_what_one_rank_learns(on_ranks):
    run = (Deep(), replace(EXACT, accumulate=4, clip=0.1))  # the last batch has 3 samples
    rank_0, *_ = on_ranks(runs_of, [run], 4, ranks=4)
    for seen, expected in zip(rank_0[0], learned(*run), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


class Noting(nn.Dropout):
    """A dropout that remembers which values it kept."""

    def forward(self, x_BTF: Tensor) -> Tensor:
        output = super().forward(x_BTF)
        self.kept = (output != 0).tolist()
        return output


@dataclass(frozen=True)
class Twins(Deep):
    """A task with two equal layers, each with dropout."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 3), Noting(0.5), nn.Linear(3, 3), Noting(0.5))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch[0])


def drawn(rank: int) -> list[Any]:
    """Return the values that this rank's layer kept, and the rank's next random numbers."""
    worker = replace(Worker.alone(training=EXACT), rank=rank, world_size=2)
    with prepare(Twins(), worker) as session:
        session.train_steps(1, 1)
        [layer] = [
            module
            for module in session.passes.unwrapped_model.modules()
            if isinstance(module, Noting)
        ]
        return [layer.kept, torch.rand(3).tolist()]


def test_stages_drop_other_units_and_ranks_go_on_drawing_alike(on_two_ranks):
    (kept_0, later_0), (kept_1, later_1) = on_two_ranks(drawn)
    assert kept_0 != kept_1
    assert later_0 == later_1


def refused(task: Deep) -> str:
    worker = replace(Worker.alone(training=EXACT), world_size=2)
    with pytest.raises(ValueError, match="pipeline") as refusal:
        shard_layers(task.build_model(), worker, nullcontext)
    return str(refusal.value)


@dataclass(frozen=True)
class Given(Deep):
    """A task with a given model."""

    model: nn.Module = field(default_factory=nn.Module)

    def build_model(self) -> nn.Module:
        return self.model


def test_models_that_are_no_row_of_layers_are_refused():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    assert "the model is a Decoding" in refused(Decoded())
    assert "only 1 of the model's layers" in refused(Given(model=nn.Sequential(first, nn.ReLU())))
    assert "a layer stands in the model twice" in refused(Given(model=nn.Sequential(first, first)))
    second.weight = first.weight
    assert "0.weight and 1.weight are one weight" in refused(
        Given(model=nn.Sequential(first, second))
    )


def passed(compute: Any, *sizes: int) -> list[Tensor]:
    source = Tensors(torch.arange(12.0).reshape(6, 2))
    parts = list(torch.arange(sum(sizes)).split(sizes))
    return MicroBatches(source, parts, 3, 0, True).inputs(compute)


def test_parts_are_filled_up_to_one_size():
    inputs = passed(lambda model, batch: model(batch[0]), 2, 1)
    assert [values.tolist() for values in inputs] == [
        [[0, 1], [2, 3]],
        [[4, 5], [4, 5]],
        [[0, 1], [2, 3]],
    ]


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda model, batch: batch[0], "did not call the model"),
        (lambda model, batch: model(batch[0], batch[0]), "other things than one tensor"),
        (lambda model, batch: model(mask=batch[0]), "other things than one tensor"),
        (lambda model, batch: model(batch[0].T), "put samples along the first dimension"),
    ],
)
def test_calls_that_cannot_be_passed_on_are_refused(compute, message):
    with pytest.raises(ValueError, match=message):
        passed(compute, 2, 1)
