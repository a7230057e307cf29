"""An update, by its options. If these fail, an option is accepted and does nothing, or harm.

Axes: N samples, B samples of a batch.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch, Data, Tensors
from trainables.runtime.assignment import outcome_kind
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.trainer.fit import DataTooLarge


@dataclass(frozen=True)
class Line(Task):
    """A task: the sum of three numbers, 40 samples in batches of 8."""

    lr: float = 0.05
    batch: int = 8
    fits: int = 10**6  # samples that memory has room for
    poisoned: tuple[int, ...] = ()  # calls of compute_losses whose losses are not numbers

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def load_data(self) -> Data:
        x_NF = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        columns = (x_NF, x_NF.sum(dim=1))
        return Data(Tensors(*columns), Tensors(*(column[:10] for column in columns)))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BF, y_B = batch
        if model.training and len(x_BF) > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        losses_B = (model(x_BF).squeeze(1) - y_B).square()
        if model.training:
            calls.append(len(x_BF))
            if len(calls) in self.poisoned:
                return losses_B * math.nan
        return losses_B


calls: list[int] = []  # the sizes of micro-batches that were trained on


def learned(task: Task, until: int = 3, nan: str = "stop", **options: Any) -> list[dict[str, Any]]:
    """Return the reports of a single rank."""
    calls.clear()
    training = Training(**{"precision": "64-true", **options})
    worker = replace(Worker.alone(until=until, training=training), nan=nan)
    task.train(worker)
    return [report.metrics for report in worker.reports]


def losses(reports: list[dict[str, Any]]) -> list[float]:
    return [metrics["val/loss"] for metrics in reports]


def test_a_micro_batch_that_does_not_fit_is_halved_and_nothing_else_changes():
    small = learned(Line(fits=3))
    assert max(calls) <= 3
    assert losses(small) == pytest.approx(losses(learned(Line())), abs=1e-12)
    assert [metrics["train/accumulate"] for metrics in small] == [4, 4, 4]


class Vast(Tensors):
    """A source of samples for which the rank's device has no room."""

    def to(self, device: torch.device, dtype: torch.dtype) -> Tensors:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 99.00 GiB.")


def test_samples_without_room_are_no_fault_of_the_configuration():
    """The searcher would learn that every configuration fails."""

    @dataclass(frozen=True)
    class Large(Line):
        def load_data(self) -> Data:
            data = super().load_data()
            return Data(Vast(*data.train.columns), data.validation)

    with pytest.raises(DataTooLarge, match=r"give MapDataset\(...\) or Tokens\(...\)") as failure:
        Large().train(Worker.alone())
    assert outcome_kind(failure.value) == "user"


def test_an_order_begins_with_the_micro_batches_that_its_trial_came_down_to():
    worker = replace(Worker.alone(), shrink=2)
    calls.clear()
    Line().train(worker)
    assert set(calls) == {2}


def test_a_bad_update_is_skipped_and_counted():
    reports = learned(Line(poisoned=(3,)), nan="skip")
    assert [metrics["train/skipped"] for metrics in reports] == [1, 1, 1]
    assert all(math.isfinite(metrics["train/loss"]) for metrics in reports)
    assert all(map(math.isfinite, losses(reports)))
    assert losses(reports)[-1] < losses(reports)[0]


def test_without_a_policy_what_is_not_a_number_is_reported():
    assert math.isnan(losses(learned(Line(poisoned=(3,))))[-1])


@pytest.mark.parametrize(
    "schedule", ["constant", "linear", "cosine", "one_cycle", "polynomial", "wsd", "plateau"]
)
def test_each_schedule_sets_the_rate_that_is_reported(schedule):
    rates = [m["train/lr"] for m in learned(Line(), 10, schedule=schedule, warmup=0.3)]
    assert rates[0] < rates[2] <= 0.05  # it rises in the first three steps of ten
    assert rates[2] == pytest.approx(0.05, rel=0.1)
    assert (rates[-1] == 0.05) is (schedule in ("constant", "plateau"))


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.05), ("linear", 0.1), ("sqrt", 0.0707)])
def test_the_rate_grows_with_the_batch_by_the_rule(rule, rate):
    given = {} if rule == "none" else {"lr_scaling": rule, "lr_base_batch": 4}
    scaled = learned(Line(), 1, **given)[0]["train/lr"]
    assert scaled == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("by", ["norm", "value", "adaptive"])
def test_clipping_says_how_much_it_clipped(by):
    free, tight = learned(Line(), clip=1e9, clip_by=by), learned(Line(), clip=1e-9, clip_by=by)
    assert losses(free) == losses(learned(Line()))
    assert [metrics["train/clip_fraction"] for metrics in free] == [0, 0, 0]
    assert min(metrics["train/clip_fraction"] for metrics in tight) > 0.9
    assert free[0]["train/grad_norm"] == pytest.approx(tight[0]["train/grad_norm"], rel=1.0)


def test_averaged_weights_are_evaluated_and_training_goes_on_with_its_own():
    plain, averaged = learned(Line()), learned(Line(), ema=0.9)
    assert [m["train/loss"] for m in averaged] == [m["train/loss"] for m in plain]
    assert losses(averaged) != losses(plain)


def test_every_report_says_where_the_time_went():
    metrics = learned(Line(), 1)[0]
    parts = [metrics[f"perf/{part}_ms"] for part in ("data", "forward", "backward", "optimizer")]
    assert 0 < sum(parts) < metrics["perf/step_ms"]
    assert metrics["perf/samples_per_s"] == pytest.approx(1e3 * 8 / metrics["perf/step_ms"])
    assert metrics["perf/memory_peak_gb"] > 0


def test_a_step_that_is_resumed_is_as_fast_as_its_own_updates(tmp_path):
    start = replace(Worker.alone(folder=tmp_path), every=Period(updates=1))
    Line(batch=2).train(start)
    amid = next(saved for saved in start.link.kept if saved.within == 3)
    rest = replace(Worker.alone(folder=tmp_path), order=2, start=amid)
    Line(batch=2).train(rest)
    metrics = rest.reports[0].metrics
    assert metrics["perf/samples_per_s"] == pytest.approx(1e3 * 2 / metrics["perf/step_ms"])
    assert metrics["perf/tokens_per_s"] == metrics["perf/samples_per_s"]


class Owned(nn.Module):
    """A model of a user's own class, and not one of torch's."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@dataclass(frozen=True)
class Own(Line):
    def build_model(self) -> nn.Module:
        return Owned(super().build_model())


@pytest.mark.full
@pytest.mark.parametrize("task", [Line(), Own()], ids=["torch's", "own"])
def test_a_compiled_model_is_compiled_and_learns_the_same(task):
    graphs = torch._dynamo.utils.counters["stats"]
    for _ in range(6):  # more than the compiler would keep of one function
        graphs.clear()
        curve = losses(learned(task, compile="aot_eager"))
        assert graphs["unique_graphs"] > 0
    assert curve == pytest.approx(losses(learned(task)))


def test_compiled_running_means_are_not_updated_twice():
    @dataclass(frozen=True)
    class Normed(Line):
        def build_model(self) -> nn.Module:
            return nn.Sequential(nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)), nn.Linear(1, 1))

    with pytest.raises(ValueError, match=r"0 has a norm with running means.*GroupNorm"):
        learned(Normed(), compile="aot_eager", activation_checkpointing=1)


def test_weights_that_the_optimizer_leaves_alone_get_no_gradient():
    @dataclass(frozen=True)
    class Last(Line):
        def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
            return torch.optim.SGD(model[2].parameters(), lr=self.lr)

    @dataclass(frozen=True)
    class Frozen(Last):
        def build_model(self) -> nn.Module:
            model = super().build_model()
            model[0].requires_grad_(False)
            return model

    assert learned_of(Last()) == learned_of(Frozen())


def learned_of(task: Task) -> list[tuple[float, float]]:
    reports = learned(task, clip=1.0)
    return [(metrics["val/loss"], metrics["train/grad_norm"]) for metrics in reports]


def test_data_without_samples_are_refused():
    @dataclass(frozen=True)
    class Empty(Line):
        def load_data(self) -> Data:
            data = super().load_data()
            return replace(data, validation=Tensors(torch.ones(0, 3), torch.ones(0)))

    with pytest.raises(ValueError, match="no samples in validation; give one or more"):
        learned(Empty())


@dataclass(frozen=True)
class Sparing(Line):
    """A task where few samples' losses count, and a single one's in the last batch."""

    batch: int = 13

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        losses_B = super().compute_losses(model, batch)
        return losses_B[batch[1] > 1.5] if model.training else losses_B


def test_a_batch_of_which_nothing_or_little_counts_is_no_fault():
    reports = learned(Sparing(), until=2)
    assert all(math.isfinite(report["train/loss"]) for report in reports)
