"""Objectives of Optuna, run by a worker. If these fail, they report what the sweep misreads."""

from dataclasses import replace

import optuna
import pytest

from trainables import ReportError, StopTrial, Worker
from trainables.load import bind
from trainables.worker import Diverged


class Stops:
    """A link whose answers end the trial at a step."""

    def __init__(self, worker, step):
        self.inner, self.step = worker.link, step

    def exchange(self, report):
        self.inner.exchange(report)
        return report.step < self.step

    def __getattr__(self, name):
        return getattr(self.inner, name)


def make_worker(**changes):
    return replace(Worker.alone(until=None), metrics=("loss",), trial="t0007", **changes)


def attempt(objective, worker=None, **params):
    worker = worker or make_worker()
    bind(objective, params)(worker)
    return [(report.step, report.metrics) for report in worker.reports]


def test_text_that_is_a_number_is_one_as_in_optuna():
    assert attempt(lambda trial: "0.5") == [(1, {"loss": 0.5})]
    with pytest.raises(ReportError, match="metric 'loss' is 'low'"):
        attempt(lambda trial: "low")


def test_an_objective_that_does_not_ask_is_ended_at_its_next_report():
    worker = make_worker()
    inner = worker.link
    worker.link = Stops(worker, 2)

    def objective(trial):
        for epoch in range(9):
            trial.report(epoch, epoch)

    with pytest.raises(StopTrial):
        bind(objective, {})(worker)
    assert len(inner.reports) == 2


def test_an_objective_that_prunes_itself_keeps_its_reports_or_has_diverged():
    def objective(trial):
        if trial.suggest_float("x", 0, 1) < 0.5:
            trial.report(1, 0)
        raise optuna.TrialPruned("on its own")

    assert attempt(objective, x=0.25) == [(1, {"loss": 1.0})]
    with pytest.raises(Diverged, match="pruned it before it reported"):
        attempt(objective, x=0.75)


def test_the_trial_knows_its_number_and_what_was_suggested():
    def objective(trial):
        assert (trial.number, trial.params) == (6, {})
        trial.suggest_float("x", 0, 1)
        trial.suggest_categorical("one", ["only"])
        trial.suggest_int("same", 3, 3)
        assert trial.params == {"x": 0.25, "one": "only", "same": 3}
        with pytest.raises(AttributeError, match="has no 'study'; it has suggest_float"):
            trial.study  # noqa: B018
        return 1

    attempt(objective, x=0.25)


def test_the_worker_knows_what_was_not_asked_for_though_the_trial_is_ended_early():
    def objective(trial):
        trial.suggest_float("lr", 0, 1)
        for epoch in range(9):
            trial.report(epoch, epoch)

    worker = make_worker()
    worker.link = Stops(worker, 2)
    with pytest.raises(StopTrial):
        bind(objective, {"lr": 0.5, "lrr": 0.5})(worker)
    assert worker.unused == ("lrr",)


def test_values_are_as_many_as_the_metrics():
    with pytest.raises(ReportError, match="gives 2 values, and the sweep has the metrics loss"):
        attempt(lambda trial: (1, 2))


def test_a_choice_is_one_of_those_suggested():
    with pytest.raises(ReportError, match=r"kind is 'c', and the objective suggests one of"):
        attempt(lambda trial: trial.suggest_categorical("kind", ["a", "b"]), kind="c")
