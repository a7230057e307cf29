"""If these fail, samples count twice or never: on several ranks, or where training resumes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import SOURCES, TRAINING, VALIDATION, Counting, once
from torch import Tensor, nn

from trainables import Saved, Training, Worker
from trainables.data import Batch, Data, MapDataset
from trainables.storage.checkpoint import Period
from trainables.worker import LocalLink

MOMENTS = ((0, 1), (0, 3), (1, 2))  # whole steps, and updates of the next one


def worker(rank: int, ranks: int, folder: Path, **fields: Any) -> Worker:
    name = "single" if ranks == 1 else "ddp"
    training = Training(name, precision="64-true", accumulate=2)
    alone = Worker.alone(until=2, folder=folder, training=training)
    return replace(alone, rank=rank, world_size=ranks, **fields)


def means(own: Worker) -> list[tuple[float, float]]:
    return [
        (report.metrics["train/loss"], report.metrics["val/loss"])
        for report in own.reports
        if report.metrics
    ]


def trained(rank: int, ranks: int, folder: Path, starts: dict[str, list[Saved]]) -> dict[str, Any]:
    """Return by source: means of a run, its mid-epoch checkpoints, means of resumed runs."""
    results = {}
    for source in SOURCES:
        task = Counting(source=source, folder=folder.parent)
        own = worker(rank, ranks, folder / source, every=Period(updates=1))
        task.train(own)
        resumed = []
        for number, start in enumerate(starts.get(source, ())):
            again = replace(own, order=2 + number, first=start.step + 1, start=start)
            again = replace(again, link=LocalLink())
            task.train(again)
            resumed.append(means(again))
        draws = [report.metrics.get("val/drawn") for report in own.reports if report.metrics]
        kept = [saved for saved in own.link.kept if saved.position in MOMENTS]
        results[source] = (means(own), kept, resumed, draws)
    return results


@pytest.fixture(scope="module")
def on_each(on_ranks, tmp_path_factory):
    """Train 1, 2 and 3 ranks on each source; 2 ranks resume from 1 rank, and 1 rank from 2."""
    folder = tmp_path_factory.mktemp("counting")
    alone = trained(0, 1, folder / "1", {})
    begun = {source: result[1] for source, result in alone.items()}
    two = on_ranks(trained, 2, folder / "2", begun, ranks=2)
    three = on_ranks(trained, 3, folder / "3", {}, ranks=3)
    back = trained(0, 1, folder / "4", {source: result[1] for source, result in two[0].items()})
    return {1: back, 2: two[0], 3: three[0]}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_sample_counts_once_an_epoch_in_training_and_in_evaluation(on_each, source, ranks):
    seen, _, _, _ = on_each[ranks][source]
    assert seen == [(once(TRAINING), once(VALIDATION))] * 2


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_that_resumes_amid_an_epoch_on_other_ranks_sees_the_rest_once(
    on_each, source, ranks
):
    _, kept, resumed, _ = on_each[ranks][source]
    assert [saved.position for saved in kept] == list(MOMENTS)
    for (step, _), seen in zip(MOMENTS, resumed, strict=True):
        assert seen == [(once(TRAINING), once(VALIDATION))] * (2 - step)


class Piped(Counting):
    """Two layers; its evaluation tells whether another process had loaded each sample."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))

    def load_data(self) -> Data:
        return Data(MapDataset(made, length=TRAINING), MapDataset(made, length=VALIDATION))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        positions, maker = batch
        return 2.0 ** positions.double() + 0 * model(maker[:, None]).squeeze(1)

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return {"loss": self.compute_losses(model, batch), "ahead": batch[1] != os.getpid()}


def made(position: int) -> tuple[int, float]:
    return position, float(os.getpid())


def piped(rank: int, folder: Path) -> list[Mapping[str, float]]:
    options = Training("pipeline", precision="64-true", accumulate=2)
    own = replace(worker(rank, 2, folder), training=options)
    Piped().train(own)
    return [report.metrics for report in own.reports]


def test_a_pipelines_micro_batches_are_loaded_ahead(on_two_ranks, tmp_path):
    first, _ = on_two_ranks(piped, tmp_path)
    assert [metrics["train/loss"] for metrics in first] == [once(TRAINING)] * 2
    assert [metrics["val/loss"] for metrics in first] == [once(VALIDATION)] * 2
    assert [metrics["val/ahead"] for metrics in first] == [1.0] * 2


def test_a_samples_random_numbers_depend_on_no_rank(on_each):
    expected = on_each[1]["loaded"][3]
    assert expected[0] == expected[1]  # of evaluations: a report compares with the one before
    for ranks in (2, 3):
        assert on_each[ranks]["loaded"][3] == pytest.approx(expected, rel=1e-12)
