"""Functions of a configuration. If these fail, people's functions run and nothing is recorded."""

import os
from dataclasses import dataclass, replace
from functools import partial

import pytest

import hposvc
from trainables import ReportError, StopTrial, Worker
from trainables.load import bind

PARAMS = {"lr": 0.5, "training.clip": 1.0}


def attempt(function, worker=None, until=1):
    worker = worker or replace(Worker.alone(until=until), metrics=("loss",))
    bind(function, PARAMS)(worker)
    return [(report.step, report.metrics) for report in worker.reports]


def rung(until, total, first=1):
    return replace(Worker.alone(), metrics=("loss",), first=first, until=until, total=total)


@pytest.mark.parametrize(
    ("returned", "metrics"),
    [(0.25, {"loss": 0.25}), ({"loss": 1, "acc": 2}, {"loss": 1, "acc": 2})],
)
def test_what_a_function_returns_is_its_one_report(returned, metrics):
    assert attempt(lambda config: returned, until=3) == [(3, metrics)]
    assert attempt(lambda params, worker: returned, until=3) == [(3, metrics)]


def test_what_a_class_returns_is_its_one_report_too():
    @dataclass
    class Train:
        lr: float = 0.0

        def train(self, worker):
            return {"loss": self.lr + worker.until}

    assert attempt(Train, until=3) == [(3, {"loss": 3.5})]


def test_a_result_that_its_reports_lacked_is_one_more_report():
    def train(config):
        hposvc.report({"train": 2.0})
        return {"loss": 0.5}

    assert attempt(train, until=3) == [(1, {"train": 2.0}), (2, {"loss": 0.5})]


@pytest.mark.parametrize(
    ("name", "returned", "doubted"),
    [
        *(("loss", returned, True) for returned in (0.5, {"loss": 0.5})),
        *(("train", returned, True) for returned in (0.5, {"loss": 0.5})),
        *(("loss", returned, False) for returned in (2.0, {"loss": 1.0}, {"loss": "text"})),
        *(("loss", returned, False) for returned in ("a model", {"history": 3}, None)),
    ],
)
def test_another_result_than_those_reported_is_doubted(name, returned, doubted):
    def train(config):
        for value in (2.0, 1.0):
            hposvc.report({name: value})
        return returned

    worker = replace(Worker.alone(until=2), metrics=("loss",))
    assert attempt(train, worker) == [(1, {name: 2.0}), (2, {name: 1.0})]
    said = "it returned loss = 0.5 after its reports, which alone count"
    assert worker.warning[: len(said)] == (said if doubted else "")


def test_a_number_is_no_report_of_several_metrics():
    worker = replace(Worker.alone(), metrics=("loss", "size"))
    with pytest.raises(ReportError, match=r"a number, and the sweep has the metrics loss, size"):
        attempt(lambda config: 0.5, worker)
    assert attempt(lambda config: {"loss": 1, "size": 2}, worker) == [(1, {"loss": 1, "size": 2})]


def test_a_function_gets_its_configuration_alone_and_what_partial_gave():
    def train(config, *, factor):
        assert config == {"lr": 0.5}
        hposvc.report({"loss": config["lr"] * factor})
        return "a model"  # not needed any more

    assert attempt(partial(train, factor=4)) == [(1, {"loss": 2.0})]


def test_reports_without_a_step_count_on_from_the_first_of_the_order():
    def train(config):
        hposvc.report({"loss": 1})
        hposvc.report({"loss": 2}, step=6)
        hposvc.report({"loss": 3})

    steps = [step for step, _ in attempt(train, rung(first=4, until=7, total=7))]
    assert steps == [4, 6, 7]


def test_a_checkpoint_is_kept_and_found_again(tmp_path):
    def train(config):
        before = hposvc.get_checkpoint()
        count = int((before / "count").read_text()) if before else 0
        (tmp_path / "count").write_text(f"{count + 1}")
        hposvc.report({"loss": count}, checkpoint=tmp_path)

    worker = replace(Worker.alone(), metrics=("loss",))
    attempt(train, worker)
    again = replace(Worker.alone(), metrics=("loss",), start=worker.reports[0].checkpoint)
    assert attempt(train, again) == [(1, {"loss": 1.0})]


def test_a_function_that_does_not_know_where_the_rung_ends_is_ended_there():
    """At the trial's own end, in contrast, the function may continue to clean up."""
    tidied = []

    def train(config):
        for _ in range(27):
            hposvc.report({"loss": 1})
        tidied.append(True)

    worker = rung(until=3, total=27)
    with pytest.raises(StopTrial):
        attempt(train, worker)
    assert [report.step for report in worker.reports] == [1, 2, 3]
    attempt(train, rung(until=27, total=27))
    assert tidied == [True]


def test_a_session_ends_with_its_function(capsys):
    attempt(lambda config: 1.0)
    hposvc.report({"loss": 2.0})
    assert capsys.readouterr().err == "report: {'loss': 2.0}\n"
    assert "HPOSVC_LINE" not in os.environ
