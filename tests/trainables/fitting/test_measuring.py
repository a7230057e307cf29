"""If these fail, what a model costs is missing or wrong in reports, or measuring changes training.

Axes: B samples of a batch.
"""

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import Deep, Normed, curves
from torch import Tensor, nn

from trainables import Saved, Training, Worker, costs
from trainables.batched.batch import Batch as Trials
from trainables.data import Batch, Data, Tensors
from trainables.fitting.fit import prepare
from trainables.task import Task

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
SHARED = [Training("fsdp"), Training("tensor"), Training("pipeline", accumulate=2)]
LOSSES = ("train/loss", "val/loss")


@dataclass(frozen=True)
class Plain(Normed):
    """With batch norm and random numbers."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(*super().build_model(), nn.Dropout(0.3))


@dataclass(frozen=True)
class Measured(Plain):
    """It draws numbers and calls the model while it measures."""

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        random.random()
        torch.rand(3)
        model(sample[0])
        return {"parameters": costs.parameters(model), "flops": costs.flops(model, sample[0])}


@dataclass(frozen=True)
class Split(Deep):
    """What every strategy can train; it tells what it was asked to measure."""

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
    """With as many losses whatever the samples, as trials that train at once must have."""

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BTF, y_BT, _ = batch
        return (model(x_BTF).squeeze(2) - y_BT).square()


@dataclass(frozen=True)
class Told(Deep):
    """It measures what the test says."""

    name: str = "parameters"
    value: Any = 1.0

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        return {self.name: self.value}

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        return {"perplexity": math.exp(metrics["val/loss"])}


class Asked(Tensors):
    """It counts for how many samples it was asked."""

    given = 0

    def to(self, device: torch.device, dtype: torch.dtype) -> "Asked":
        return self

    def batch(self, at_B: Tensor) -> Batch:
        self.given += len(at_B)
        return super().batch(at_B)


def trained(task: Task, until: int = 2, **training: Any) -> Worker:
    worker = Worker.alone(until=until, training=Training(**training))
    task.train(worker)
    return worker


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


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed", "16-mixed"])
def test_every_precision_is_measured(precision):
    assert trained(Measured(), precision=precision).reports[-1].metrics["flops"] > 0


def test_operations_of_a_compiled_model_are_counted():
    worker = trained(Split(), until=1, compile="aot_eager")
    assert worker.reports[-1].metrics["flops"] == trained(Split(), 1).reports[-1].metrics["flops"]


def resumed(folder: Path, task: Task) -> Worker:
    first = replace(Worker.alone(until=1, folder=folder), total=2)
    task.train(first)
    start = first.reports[0].checkpoint
    assert isinstance(start, Saved)
    second = replace(Worker.alone(until=2, folder=folder), first=2, order=2, start=start)
    task.train(second)
    return second


def test_a_resumed_trial_is_measured_too(tmp_path):
    assert resumed(tmp_path, Split()).reports[-1].metrics["samples"] == 2


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


def test_two_ranks_learn_the_same_bits_measured_or_not(on_two_ranks: Callable[..., list[Any]]):
    heard = [
        [[report[name] for name in LOSSES] for report in curve]
        for task in (Measured(), Plain())
        for curve in on_two_ranks(curves, task, [Training("ddp"), Training("fsdp")], 2)[0]
    ]
    assert heard[:2] == heard[2:]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("val/size", 1, r"Told.measure: 'val/size': val/ is what the runtime .* name it 'size'"),
        ("perf/memory/peak", 1, "'perf/memory/peak': perf/ .* name it 'peak'"),
        ("size", math.nan, "Told.measure: 'size' is nan; give a finite number"),
        ("size", -math.inf, "Told.measure: 'size' is -inf; give a finite number"),
        ("size", "3 MB", r"Told.measure: metric 'size' is '3 MB' \(str\); give a real number"),
        ("size", torch.ones(2), "Told.measure: metric 'size' holds several numbers; give one"),
        ("size%", 1, "Told.measure: metric name 'size%' may hold letters"),
    ],
)
def test_what_cannot_be_reported_is_refused_before_training(name, value, said):
    worker = Worker.alone()
    with pytest.raises(ValueError, match=said):
        Told(name=name, value=value).train(worker)
    assert worker.reports == []


def test_a_name_that_summarize_has_too_is_refused():
    with pytest.raises(ValueError, match=r"Told.measure: 'perplexity' is reported by summarize"):
        trained(Told(name="perplexity"))


def test_the_task_of_the_page_measures(monkeypatch):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/metrics.md", "exec"), names)
    metrics = trained(names["Frugal"](width=4), until=1).reports[0].metrics
    model = names["Frugal"](width=4).build_model()
    assert metrics["parameters"] == costs.parameters(model)
    assert metrics["flops"] > metrics["latency_ms"] > 0
