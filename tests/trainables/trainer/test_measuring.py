"""If these fail, costs of a model are missing or wrong in reports, or measuring changes training.

Axes: B samples of a batch.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pages
import pytest
import torch
from tasks import Deep, Normed, curves
from torch import Tensor, nn

from trainables import Training, Worker, costs
from trainables.data import Batch, Data, Tensors
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.vmapped.batch import Batch as Trials

SHARED = [Training("fsdp"), Training("tensor"), Training("pipeline", accumulate=2)]
LOSSES = ("train/loss", "val/loss")


@dataclass(frozen=True)
class Plain(Normed):
    """A task with batch norm and random numbers."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(*super().build_model(), nn.Dropout(0.3))


@dataclass(frozen=True)
class Measured(Plain):
    """A task that draws numbers and calls the model while it measures."""

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        random.random()
        torch.rand(3)
        model(sample[0])
        return {"parameters": costs.parameters(model), "flops": costs.flops(model, sample[0])}


@dataclass(frozen=True)
class Split(Deep):
    """A task for every strategy, measuring the model and the sample that it is given."""

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        weights = list(model.parameters())
        return {
            "parameters": sum(weight.numel() for weight in weights),
            "plain": float(all(type(weight) is nn.Parameter for weight in weights)),
            "training": float(model.training or torch.is_grad_enabled()),
            "samples": len(sample[0]),
            "flops": costs.flops(model, sample[0]),
        }


@dataclass(frozen=True)
class Even(Split):
    """A task with equally many losses whatever the samples, as trials in one process need."""

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, _ = batch
        return (model(x_BTF).squeeze(2) - y_BT).square()


@dataclass(frozen=True)
class Told(Deep):
    """A task that measures the values of the test."""

    name: str = "parameters"
    value: Any = 1.0

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        return {self.name: self.value}

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return {"perplexity": math.exp(metrics["val/loss"])}


def trained(task: Task, until: int = 2, **training: Any) -> Worker:
    worker = Worker.alone(until=until, training=Training(**training))
    task.train(worker)
    return worker


class Asked(Tensors):
    """A source that counts the samples that it was asked for."""

    given = 0

    def to(self, device: torch.device, dtype: torch.dtype) -> "Asked":
        return self

    def batch(self, at_B: Tensor) -> Batch:
        self.given += len(at_B)
        return super().batch(at_B)


@pytest.mark.parametrize(("kind", "number"), [(Plain, 0), (Measured, 2)])
def test_only_a_task_that_measures_pays_for_it(kind, number, monkeypatch):
    data = kind().load_data()
    asked = Asked(*(column.float() for column in data.validation.columns[:2]))
    monkeypatch.setattr(kind, "load_data", lambda _: Data(data.train, asked))
    with prepare(kind(), Worker.alone()):
        assert asked.given == number


def test_modules_are_in_their_own_modes_again():
    seen = []

    @dataclass(frozen=True)
    class Half(Deep):
        def build_model(self) -> nn.Module:
            model = super().build_model()
            seen.append(model[2].eval())
            return model

        def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
            seen.extend((model.training, torch.is_grad_enabled()))
            return {}

    with prepare(Half(), Worker.alone()) as session:
        assert seen[1:] == [False, False]
        assert session.state.model.training
        assert not seen[0].training


def test_measuring_changes_no_bit_of_training():
    measured, plain = (
        [[report.metrics[name] for name in LOSSES] for report in trained(task).reports]
        for task in (Measured(), Plain())
    )
    assert measured == plain


def test_every_report_holds_what_was_measured_under_its_own_name():
    size = costs.parameters(Measured().build_model())
    for report in trained(Measured(), until=3).reports:
        assert report.metrics["parameters"] == size
        assert report.metrics["flops"] == 5 * 2 * (3 * 8 + 8 * 8 + 8)


@pytest.mark.full
def test_operations_of_a_compiled_model_are_counted():
    worker = trained(Split(), until=1, compile="aot_eager")
    assert worker.reports[-1].metrics["flops"] == trained(Split(), 1).reports[-1].metrics["flops"]


def test_trials_of_one_process_are_each_measured():
    workers = [replace(Worker.alone(until=1, seed=seed), order=seed) for seed in (1, 2)]
    with Trials(2) as trials:
        for worker in workers:
            trials.add(Even(), worker)
        errors = [error for _, error in trials.epoch()]
    assert errors == [None, None]
    alone = trained(Even(), until=1).reports[0].metrics
    for worker in workers:
        for name in ("parameters", "flops", "samples", "training"):
            assert worker.reports[0].metrics[name] == alone[name]


@pytest.mark.full
def test_ranks_that_share_a_model_report_what_the_whole_one_costs(
    on_two_ranks: Callable[..., list[Any]],
):
    trainings = [Training("ddp"), *SHARED]
    rank_0, rank_1 = on_two_ranks(curves, Split(), trainings, 2, 1)
    alone = trained(Split(), until=1).reports[0].metrics
    for (report,) in rank_0:
        for name in ("parameters", "plain", "training", "samples", "flops"):
            assert report[name] == alone[name]
    assert rank_1 == [[{}]] * len(trainings)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("val/size", 1, r"Told.measure: 'val/size': val/ is what the runtime .* name it 'size'"),
        ("perf/memory/peak", 1, "'perf/memory/peak': perf/ .* name it 'peak'"),
        (
            "val/size",
            "3 MB",
            "Told.measure: 'val/size': val/ is what the runtime .* name it 'size'",
        ),
    ],
)
def test_what_cannot_be_reported_is_refused_before_training(name, value, said):
    worker = Worker.alone()
    with pytest.raises(ValueError, match=said):
        Told(name=name, value=value).train(worker)
    assert worker.reports == []


@pytest.mark.parametrize(
    ("value", "found"), [("3 MB", "'3 MB' (str)"), (torch.ones(2), "several numbers (Tensor)")]
)
def test_a_measurement_that_is_no_number_is_left_out(value, found):
    worker = Worker.alone()
    Told(name="size", value=value).train(worker)
    [report] = worker.reports
    assert "size" not in report.metrics
    assert report.left_out == {"size": found}


def refused(rank: int) -> str:
    with pytest.raises(ValueError, match=r"Told\.measure") as caught:
        curves(rank, Told(name="val/size"), [Training("ddp")], 2)
    return str(caught.value)


def test_what_rank_0_cannot_measure_is_raised_on_all_ranks(on_two_ranks: Callable[..., list[Any]]):
    """The others would wait for it in their first update, until that times out."""
    said = "Told.measure: 'val/size': val/ is what the runtime reports; name it 'size'"
    assert on_two_ranks(refused) == [said] * 2


def test_a_name_that_summarize_has_too_is_refused():
    with pytest.raises(ValueError, match=r"Told.measure: 'perplexity' is reported by summarize"):
        trained(Told(name="perplexity"))


def test_the_task_of_the_page_measures(monkeypatch):
    (block,) = pages.blocks("how-to/metrics.md")
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/how-to/metrics.md", "exec"), names)
    metrics = trained(names["Frugal"](width=4), until=1).reports[0].metrics
    model = names["Frugal"](width=4).build_model()
    assert metrics["parameters"] == costs.parameters(model)
    assert metrics["flops"] > metrics["latency_ms"] > 0
