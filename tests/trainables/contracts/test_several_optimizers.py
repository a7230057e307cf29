"""Tasks with several optimizers, on one rank and on two. If these fail, a trial that is resumed or
trained by other ranks learns something else."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from several_optimizers import Forging, HalfScheduleFree, Paired, ScheduleFree
from tasks import Deep, alone, curve, learned, shared
from tolerances import CALM

from trainables import Saved, Training, Worker
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.training_state import precision
from trainables.worker import LocalLink

Reports = list[dict[str, float]]
STEPS = 3
# Metrics of the updates that an order made itself, which are fewer in a resumed step.
OF_AN_ORDER = ("train/grad_norm", "train/clip_fraction")
MUON = {"optimizer": "muon", "clip": 1.0}
HALF = {"precision": "16-mixed", "clip": 0.5, "ema": 0.9, "accumulate": 2}
RUNS: dict[str, tuple[Task, dict[str, Any]]] = {
    "chained": (Paired(dropout=0.2), {}),
    "gan": (Forging(draws=True), {}),
    "gan in float16": (Forging(draws=True), HALF),
    "schedule-free": (ScheduleFree(dropout=0.2), {}),
    "half schedule-free": (HalfScheduleFree(dropout=0.2), {"clip": 0.5}),
    "muon": (Deep(dropout=0.2), MUON),
}
EXACT: list[tuple[Task, str, dict[str, Any]]] = [
    (Paired(), "ddp", {}),
    (Paired(), "zero1", {"accumulate": 2}),
    (Forging(), "ddp", {"clip": 0.5, "ema": 0.9}),
    (Forging(), "ddp", {"accumulate": 2, "deterministic": True}),
    (Forging(batch=7), "zero1", {}),
    (ScheduleFree(), "ddp", {}),
    (ScheduleFree(), "fsdp", {}),
    (ScheduleFree(), "tensor", {}),
    (ScheduleFree(), "pipeline", {"accumulate": 2}),
    (HalfScheduleFree(), "fsdp", {"clip": 0.5}),
    (Deep(), "ddp", MUON),
    (Deep(), "zero1", MUON),
]


def interrupted(rank: int, ranks: int, runs: list[tuple[Task, Training]], folder: Path) -> Any:
    """Return for each run its reports, and those that follow each of its checkpoints."""
    precision.FIRST_SCALE = CALM
    results = []
    for number, (task, training) in enumerate(runs):
        lone_worker = Worker.alone(until=STEPS, folder=folder / f"{number}", training=training)
        worker = replace(lone_worker, rank=rank, world_size=ranks, every=Period(updates=2))
        task.train(worker)
        # The link of other ranks keeps nothing.
        kept: list[Saved] = shared([*worker.link.kept], ranks)
        again = [after(task, worker, saved) for saved in kept]
        results.append((by_step(worker), list(zip(kept, again, strict=True))))
    return results


def after(task: Task, worker: Worker, start: Saved) -> Reports:
    """Return the reports of an order that continues from a checkpoint."""
    order = time.monotonic_ns()
    worker = replace(worker, order=order, first=start.step + 1, start=start, link=LocalLink())
    task.train(worker)
    return by_step(worker)


def by_step(worker: Worker) -> Reports:
    return [
        {name: value for name, value in metrics.items() if name not in OF_AN_ORDER}
        for metrics in curve(worker)
    ]


def check_equal_bits(results: Any) -> None:
    for whole, resumed in results:
        assert len(whole) == STEPS
        assert any(saved.within for saved, _ in resumed)
        assert any(not saved.within for saved, _ in resumed)
        for saved, again in resumed:
            assert again == whole[saved.step :], saved.position


@pytest.mark.parametrize("name", RUNS)
def test_an_order_that_continues_changes_no_bit(monkeypatch, tmp_path, name):
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    task, options = RUNS[name]
    check_equal_bits(interrupted(0, 1, [(task, Training(**options))], tmp_path))


@pytest.mark.full
def test_an_order_of_two_ranks_that_continues_changes_no_bit(on_two_ranks, tmp_path):
    names = [("ddp", name) for name in RUNS]
    names += [("zero1", name) for name in ("chained", "gan", "gan in float16", "muon")]
    runs = [(RUNS[name][0], Training(strategy, **RUNS[name][1])) for strategy, name in names]
    for rank in on_two_ranks(interrupted, 2, runs, tmp_path):
        check_equal_bits(rank)


def saved_amid(rank: int, runs: list[tuple[Task, Training]], folder: Path) -> list[Any]:
    """Return each run's last checkpoint within a step, and the reports of the whole run."""
    results = []
    for number, (task, training) in enumerate(runs):
        lone_worker = Worker.alone(until=STEPS, folder=folder / f"{number}", training=training)
        worker = replace(lone_worker, rank=rank, world_size=2, every=Period(updates=3))
        task.train(worker)
        amid = [saved for saved in worker.link.kept if saved.within]
        results.append((amid[-1] if amid else None, by_step(worker)))
    return results


@pytest.mark.long
def test_two_ranks_learn_what_one_does_which_can_go_on_from_their_checkpoints(
    on_two_ranks, tmp_path
):
    runs = [
        (task, Training(strategy, precision="64-true", **options))
        for task, strategy, options in EXACT
    ]
    results, _ = on_two_ranks(saved_amid, runs, tmp_path)
    for (task, training), (saved, reports) in zip(runs, results, strict=True):
        whole = learned(task, training)
        again = after(task, Worker.alone(until=STEPS, training=alone(training)), saved)
        # Muon iterates in bfloat16, where the last digit of a gradient may turn one of three.
        rounds = training.optimizer == "muon" or isinstance(task, Paired)
        for found in (reports, again):
            assert [values(m) for m in found] == [
                pytest.approx(values(m), rel=1e-3 if rounds else 1e-9) for m in whole[-len(found) :]
            ], (task, training)


def values(metrics: dict[str, float]) -> dict[str, float]:
    return {name: metrics[name] for name in metrics if name.startswith(("train/loss", "val/"))}
