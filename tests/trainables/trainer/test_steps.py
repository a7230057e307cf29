"""Trials whose steps are parts of epochs, updates, samples or tokens, in one order and in several.

The task has 23 samples of 1 to 5 tokens (70 in all), in batches of 5: five updates an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tasks import Deep, Forgetful
from torch import Tensor, nn

from trainables import Training, Worker
from trainables.data import Batch, Data, Stream
from trainables.storage.checkpoint import Period
from trainables.worker import LocalLink, Report

TOTALS = {"epoch": 3, "epoch/2": 6, "epoch/5": 15, "update": 14, "sample": 60, "token": 200}


@dataclass(frozen=True)
class Noisy(Forgetful):
    """A task that draws random numbers in training, and other ones while it is evaluated."""

    def evaluate(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        torch.rand(3)
        return super().evaluate(model, batch)

    def scale_lr(self, progress: float) -> float:
        assert 0 <= progress < 1
        return 1 - progress


def worker(folder: Any, unit: str, interval: int = 1, **options: Any) -> Worker:
    alone = Worker.alone(
        until=TOTALS[unit], folder=folder, training=Training(clip=1.0), unit=unit, interval=interval
    )
    return replace(alone, **options)


def of_learning(reports: list[Report]) -> dict[int, dict[str, float]]:
    """Return what was learned at each step."""
    names = ("train/loss", "val/loss", "train/tokens")
    return {
        report.step: {name: value for name, value in report.metrics.items() if name in names}
        for report in reports
    }


@pytest.mark.parametrize("unit", TOTALS)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_orders_learn_together_what_one_order_learns(tmp_path_factory, unit, data):
    total = TOTALS[unit]
    interval = data.draw(st.sampled_from([4, 7, 30] if total > 20 else [1, 2, 5]))
    ends = [*sorted(data.draw(st.sets(st.integers(1, total - 1), max_size=2))), total]
    once = worker(tmp_path_factory.mktemp("once"), unit, interval, milestones=tuple(ends))
    Noisy().train(once)
    folder, start, reports = tmp_path_factory.mktemp("parts"), None, []
    for before, end in pairwise([0, *ends]):
        part = worker(folder, unit, interval, first=before + 1, until=end, start=start)
        Noisy().train(part)
        reports += part.reports
        start = part.reports[-1].checkpoint
    steps = {*ends, *range(interval, total + 1, interval)}
    assert [report.step for report in reports] == sorted(steps)
    assert of_learning(reports) == of_learning(once.reports)


@pytest.mark.parametrize("unit", TOTALS)
def test_a_trial_goes_on_from_any_update_as_if_nothing_had_been(tmp_path, unit):
    interval = 30 if TOTALS[unit] > 20 else 2
    once = worker(tmp_path / "once", unit, interval, every=Period(updates=1), link=LocalLink())
    Noisy().train(once)
    starts = once.link.kept
    assert any(start.within for start in starts)
    for number, start in enumerate(starts):
        rest = worker(tmp_path / f"{number}", unit, interval, first=start.step + 1, start=start)
        Noisy().train(rest)
        later = {step: row for step, row in of_learning(once.reports).items() if step > start.step}
        assert of_learning(rest.reports) == later


def test_tokens_are_those_that_count_and_a_report_comes_with_the_update_that_reaches_them(tmp_path):
    trial = worker(tmp_path, "token", interval=50)
    Deep().train(trial)
    assert [report.step for report in trial.reports] == [50, 100, 150, 200]
    for report in trial.reports:
        assert report.step <= report.metrics["train/tokens"] < report.step + 5 * 5


def test_an_update_of_several_reports_gives_its_values_to_each(tmp_path):
    @dataclass(frozen=True)
    class Counting(Deep):
        def evaluate(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            evaluated.append(len(batch[0]))
            return super().evaluate(model, batch)

    evaluated: list[int] = []
    trial = worker(tmp_path, "sample", interval=2)
    Counting().train(trial)
    rows = of_learning(trial.reports)
    assert rows[2] == rows[4]
    assert rows[4] != rows[6]
    updates = 13  # of 60 samples: five in an epoch of 23
    assert sum(evaluated) == updates * len(Counting().load_data().validation), "once an update"


def test_a_rollback_within_an_epoch_leads_to_the_last_checkpoint(tmp_path):
    trial = worker(tmp_path, "update", 2, nan="rollback", training=Training())
    with pytest.raises(Exception, match="after 3 returns to a checkpoint"):
        Bad(at=4).train(trial)
    assert [report.step for report in trial.reports] == [2]


@dataclass(frozen=True)
class Bad(Deep):
    """A task whose losses are infinite from the third update on."""

    at: int = 4

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        model.calls = getattr(model, "calls", 0) + model.training
        losses = super().compute_losses(model, batch)
        return losses * float("inf") if model.calls >= self.at and model.training else losses


class Lines:
    """Samples of Deep, one after the other, with noise; the stream of a file, for instance."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for row in zip(*Deep().load_data().train.columns, strict=True):
            yield (row[0] + torch.randn(()), *row[1:])


@dataclass(frozen=True)
class Streamed(Noisy):
    workers: int = 0
    length: int | None = None

    def load_data(self) -> Data:
        data = super().load_data()
        stream = Stream(Lines(), workers=self.workers, length=self.length)
        return Data(stream, data.validation)


@pytest.mark.parametrize(
    ("unit", "workers", "length"), [("update", 0, None), ("token", 2, None), ("epoch", 0, 12)]
)
def test_a_stream_goes_on_from_any_update_as_if_nothing_had_been(tmp_path, unit, workers, length):
    interval = 30 if TOTALS[unit] > 20 else 2
    task = Streamed(workers=workers, length=length)
    every = Period(updates=1 if unit == "update" else 2)
    once = worker(tmp_path / "once", unit, interval, every=every, link=LocalLink())
    task.train(once)
    starts = once.link.kept
    assert any(start.within for start in starts)
    for number, start in enumerate(starts):
        rest = worker(tmp_path / f"{number}", unit, interval, first=start.step + 1, start=start)
        task.train(rest)
        later = {step: row for step, row in of_learning(once.reports).items() if step > start.step}
        assert of_learning(rest.reports) == later


def test_a_stream_without_length_has_no_epochs(tmp_path):
    with pytest.raises(ValueError, match="measure in update, sample or token"):
        Streamed().train(worker(tmp_path, "epoch"))
