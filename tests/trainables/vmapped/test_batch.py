"""If these fail, a trial that trains beside others has other results than it would have alone.

Axes: B samples of a batch.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from small import (
    EXACT,
    Drawing,
    Images,
    Small,
    again,
    continued,
    curve,
    finish,
    gap,
    together,
    worker,
)

from trainables import Training
from trainables.storage.checkpoint import Period
from trainables.vmapped.batch import Batch
from trainables.vmapped.passes import VmapForwardBackward
from trainables.worker import LocalLink, ReportError

TIGHT = 1e-12  # of losses about 1, in float64


def gap_to_alone(tasks, trials) -> float:
    """Train trials in one process and each alone; return the largest difference of a report."""
    alone = [again(trial) for trial in trials]
    together(tasks, trials)
    for task, trial in zip(tasks, alone, strict=True):
        task.train(trial)
    return gap(trials, alone)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "nesterov"])
def test_each_trial_comes_to_what_it_comes_to_alone(kind):
    tasks = [
        Small(lr=0.01 * (k + 1), kind=kind, decay=0.1 * k, momentum=0.9 - 0.2 * k) for k in range(3)
    ]
    trainings = [
        replace(EXACT, clip=0.5, schedule="cosine", warmup=0.2),
        replace(EXACT, clip=None, schedule="plateau"),
        replace(EXACT, clip=2.0, schedule="linear"),
    ]
    trials = [worker(until=5, seed=k, training=trainings[k]) for k in range(3)]
    assert gap_to_alone(tasks, trials) < TIGHT
    assert curve(trials[0]) != curve(trials[1])


@pytest.mark.parametrize(
    "tasks",
    [
        [Small(dropout=0.2 * k, smoothing=0.1 * k) for k in range(3)],
        [Images(lr=0.01 * (k + 1), dropout=0.1 * k) for k in range(3)],
    ],
    ids=["dropout and label smoothing differ", "convolutions and batch norm"],
)
def test_other_models_come_to_what_they_come_to_alone(tasks):
    assert gap_to_alone(tasks, [worker(until=3, seed=k) for k in range(3)]) < TIGHT


def test_options_for_the_optimizer_may_differ():
    options = {"optimizer": "adamw", "schedule": "wsd", "lr_scaling": "sqrt"}
    trainings = [
        replace(EXACT, **options, weight_decay=0.2 * k, lr_base_batch=4 + k) for k in range(2)
    ]
    trials = [worker(until=3, seed=k, training=trainings[k]) for k in range(2)]
    assert gap_to_alone([Small(), Small()], trials) < TIGHT


def test_places_of_trials_that_were_stopped_are_taken_by_others():
    tasks = [Small(lr=0.01 * (k + 1), dropout=0.3) for k in range(5)]
    stops = [2, 5, 1, 3, 5]
    trials = [worker(until=5, seed=k, link=LocalLink(stops[k])) for k in range(5)]
    alone = [replace(again(trial), link=LocalLink(stops[k])) for k, trial in enumerate(trials)]
    waiting = list(zip(tasks, trials, strict=True))
    most = 0
    with Batch(2) as batch:
        while waiting or batch.workers:
            while waiting and len(batch.workers) < 2:
                batch.add(*waiting.pop(0))
            most = max(most, len(batch.workers))
            for left in batch.epoch():
                assert left.error is None
    assert most == 2
    for task, trial in zip(tasks, alone, strict=True):
        _stopped(task, trial)
    assert [len(trial.reports) for trial in trials] == stops
    assert gap(trials, alone) < TIGHT


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_checkpoint_goes_on_alone_and_one_of_a_trial_alone_goes_on_in_a_batch(kind):
    tasks = [Images(lr=0.01 * (k + 1), kind=kind, dropout=0.2) for k in range(2)]
    trials = [worker(until=4, seed=k) for k in range(2)]
    uninterrupted = [again(trial) for trial in trials]
    together(tasks, uninterrupted)
    saved = [trial.reports[1].checkpoint for trial in uninterrupted]
    ahead = [continued(trial, start, 4) for trial, start in zip(trials, saved, strict=True)]
    for task, trial in zip(tasks, ahead, strict=True):
        task.train(trial)
    assert [curve(trial) for trial in ahead] != [[], []]
    assert max(_gap(own, their) for own, their in zip(ahead, uninterrupted, strict=True)) < TIGHT
    half = [replace(again(trial), until=2) for trial in trials]
    for task, trial in zip(tasks, half, strict=True):
        task.train(trial)
    rest = [
        continued(trial, own.reports[1].checkpoint, 4)
        for trial, own in zip(trials, half, strict=True)
    ]
    together(tasks, rest)
    assert max(_gap(own, their) for own, their in zip(rest, uninterrupted, strict=True)) < TIGHT


def test_a_checkpoint_amid_a_step_goes_on_in_a_batch():
    trial = worker(until=3, seed=1, every=Period(updates=2))
    uninterrupted = again(trial)
    Small(dropout=0.2).train(uninterrupted)
    [amid] = [saved for saved in uninterrupted.link.kept if saved.step == 1]
    assert amid.within > 0
    rest = [continued(trial, amid, 3), worker(until=3, seed=2)]
    together([Small(dropout=0.2), Small(dropout=0.4)], rest)
    assert _gap(rest[0], uninterrupted) < TIGHT


def test_a_period_of_updates_is_kept_to_at_the_ends_of_steps():
    trial = worker(until=5, seed=1, every=Period(updates=6))
    together([Small(), Small()], [trial, worker(until=5, seed=2)])
    assert [saved.step for saved in trial.link.kept] == [2, 4]


def test_a_trial_that_diverges_leaves_the_others_bit_by_bit_as_they_are():
    def ran(lr: float) -> list[list[dict[str, float]]]:
        trials = [worker(until=3, seed=k) for k in range(3)]
        tasks = [Small(kind="sgd"), Small(kind="sgd", lr=lr), Small(kind="sgd")]
        together(tasks, trials)
        return [curve(trial) for trial in trials]

    calm, wild = ran(0.01), ran(1e200)
    assert math.isnan(wild[1][-1]["train/loss"])
    assert wild[0] == calm[0]
    assert wild[2] == calm[2]


@dataclass(frozen=True)
class Judged(Small):
    """A task whose metric is a number of its own, or none."""

    recall: float | None = None

    def summarize(self, metrics):
        return {**metrics, "val/recall": self.recall}


def test_a_trial_that_cannot_be_added_leaves_the_others_as_they_are(monkeypatch):
    trials = [worker(until=2, seed=seed) for seed in (1, 2, 3)]
    alone = [again(trial) for trial in trials[:2]]
    with Batch(3) as batch:
        for trial in trials[:2]:
            batch.add(Small(), trial)
        whole = VmapForwardBackward.set_tasks

        def fail(passes, tasks, like):
            if len(tasks) == 3:
                raise torch.OutOfMemoryError("out of memory")
            whole(passes, tasks, like)

        monkeypatch.setattr(VmapForwardBackward, "set_tasks", fail)
        with pytest.raises(torch.OutOfMemoryError):
            batch.add(Small(), trials[2])
        finish(batch)
    for trial in alone:
        Small().train(trial)
    assert gap(trials[:2], alone) < TIGHT


def test_a_report_that_is_refused_ends_its_own_trial_only():
    trials = [worker(until=2, seed=seed, metrics=("val/recall",)) for seed in (1, 2)]
    alone = again(trials[1])
    with Batch(2) as batch:
        for task, trial in zip((Judged(), Judged(recall=0.5)), trials, strict=True):
            batch.add(task, trial)
        [left] = batch.epoch()
        assert left.worker is trials[0]
        assert isinstance(left.error, ReportError)
        finish(batch)
    Judged(recall=0.5).train(alone)
    assert gap(trials[1:], [alone]) < TIGHT


def test_what_draws_otherwise_than_by_a_dropout_module_draws_anew_for_each_trial():
    trials = [worker(until=2, seed=7) for _ in range(20)]
    together([Drawing() for _ in trials], trials)
    means = torch.tensor([curve(trial)[-1]["train/loss"] for trial in trials])
    assert len(set(means.tolist())) > 10
    # 1,200 draws a trial of 0 or 4/3: their mean is 1 and has a deviation of 0.0167.
    assert abs(means.mean() - 1) < 4 * 0.0167 / math.sqrt(20)
    assert 0.008 < means.std() < 0.03


def test_the_process_keeps_its_random_numbers_and_settings():
    before = torch.get_rng_state()
    together([Small()], [worker(until=1, seed=1, training=replace(EXACT, deterministic=True))])
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()


def test_half_of_the_bits_give_about_the_same_losses():
    training = Training(precision="bf16-mixed")
    trials = [worker(until=3, seed=k, training=training) for k in range(2)]
    assert gap_to_alone([Small(), Small()], trials) < 0.02


def _stopped(task: Small, trial) -> None:
    try:
        task.train(trial)
    except BaseException as stop:
        if type(stop).__name__ != "StopTrial":
            raise


def _gap(tail, whole) -> float:
    """Return the gap of a resumed trial's reports to those of an uninterrupted trial."""
    reports = whole.reports[-len(tail.reports) :]
    return gap([tail], [replace(whole, link=LocalLink(reports=reports))])


@dataclass(frozen=True)
class Widened(Small):
    """Small with a base of a quarter of its width."""

    width: int = 8

    def build_model(self) -> torch.nn.Module:
        first, *_, last = super().build_model()
        return torch.nn.Sequential(
            torch.nn.Linear(first.in_features, self.width),
            torch.nn.Tanh(),
            torch.nn.Linear(self.width, last.out_features),
        )

    def scale_from(self) -> "Widened":
        return replace(self, width=2)


def test_trials_that_scale_from_a_small_task_do_so_together_too():
    tasks = [Widened(lr=0.01 * (k + 1), kind="adamw") for k in range(2)]
    trials = [worker(until=3, seed=k) for k in range(2)]
    assert gap_to_alone(tasks, trials) < TIGHT
    assert curve(trials[0]) != curve(trials[1])
