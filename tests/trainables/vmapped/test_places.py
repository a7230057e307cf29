"""If these fail, a stopped trial's place stays empty, or its successor disturbs other trials."""

from contextlib import suppress
from dataclasses import replace

import pytest
from small import Images, Small, again, finish, gap, worker

from trainables.stopping import StopTrial
from trainables.vmapped.batch import Batch
from trainables.worker import LocalLink

TIGHT = 1e-12  # of losses about 1, in float64


@pytest.mark.parametrize("kind", [Small, Images])
def test_the_place_of_a_stopped_trial_is_taken_while_the_others_go_on(kind):
    tasks = [kind(lr=0.01 * (k + 1), dropout=0.1 * k) for k in range(4)]
    stops = [5, 2, 5, 3]
    trials = [worker(until=5, seed=k, link=LocalLink(stops[k])) for k in range(4)]
    alone = [replace(again(trial), link=LocalLink(stops[k])) for k, trial in enumerate(trials)]
    with Batch(3) as batch:
        for task, trial in zip(tasks[:3], trials[:3], strict=True):
            assert batch.add(task, trial)
        assert batch.epoch() == []
        [left] = batch.epoch()
        assert (left.worker, left.error) == (trials[1], None)
        assert batch.workers == [trials[0], trials[2]]  # moved together
        assert batch.add(tasks[3], trials[3])
        assert batch.workers == [trials[0], trials[2], trials[3]]  # as many as at first
        assert batch.epoch() == []
        assert [len(trial.reports) for trial in trials] == [3, 2, 3, 1]  # at once, at other steps
        finish(batch)
    for task, trial in zip(tasks, alone, strict=True):
        with suppress(StopTrial):
            task.train(trial)
    assert [len(trial.reports) for trial in trials] == stops
    assert gap(trials, alone) < TIGHT


def test_a_place_is_taken_again_and_again():
    trials = [worker(until=6, seed=0), *(worker(until=1, seed=k) for k in range(1, 6))]
    alone = [again(trial) for trial in trials]
    with Batch(2) as batch:
        batch.add(Small(dropout=0.3), trials[0])
        for k, trial in enumerate(trials[1:], start=1):
            batch.add(Small(lr=0.01 * k), trial)
            assert batch.workers == [trials[0], trial]
            assert [left.worker for left in batch.epoch()] == [trial]
        finish(batch)
    Small(dropout=0.3).train(alone[0])
    for k, trial in enumerate(alone[1:], start=1):
        Small(lr=0.01 * k).train(trial)
    assert gap(trials, alone) < TIGHT


def test_the_others_are_as_if_nobody_had_come_or_gone():
    def ran(more):
        trials = [worker(until=4, seed=k) for k in range(2)]
        with Batch(3) as batch:
            for trial in trials:
                batch.add(Small(dropout=0.2), trial)
            for k in range(more):
                batch.add(Small(lr=1.0), worker(until=1, seed=10 + k))
                batch.epoch()
            finish(batch)
        return trials

    assert gap(ran(0), ran(3)) < TIGHT
