"""Trials of a sweep without fidelity run until their trainable returns."""

import pytest
from simulated_sweeps import Desk, make_controller, make_spec

from hposvc import Sweep, api
from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Decided, Ended
from hposvc.state import summary

TEN_STEPS = """
import hposvc

def rounds(config):
    for epoch in range(10):
        hposvc.report({"loss": config["x"] / (epoch + 1)})
    print("the last line was reached")

def value(config):
    return config["x"]

def by_worker(params, worker):
    for step in range(worker.first, 11):
        assert worker.total is None and worker.until is None
        worker.report(step, {"loss": params["x"] / step})

def asks_for_steps(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": 1.0})

def tune_rounds(config):
    from ray import tune
    for epoch in range(10):
        tune.report({"loss": config["x"] / (epoch + 1)})

def two_of_three(config):
    for epoch in range(2):
        hposvc.report({"loss": 1.0})

def four_of_three(config):
    for epoch in range(4):
        hposvc.report({"loss": 1.0})
"""
SCRIPT = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--epochs", type=int, default=10)
given = parser.parse_args()
for epoch in range(given.epochs):
    print(f"loss={given.x / (epoch + 1)}")
print("the last line was reached")
"""


@pytest.fixture
def sections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ten.py").write_text(TEN_STEPS)
    (tmp_path / "script.py").write_text(SCRIPT)
    return {
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"min": 1.0, "max": 2.0}},
        "search": "random",
        "trials": {"max": 2},
        "engine": "local",
        "tracking": {"send_to": []},
    }


def open_spec(**changes):
    sections = {"engine": None, "trials": {"max": 3, "parallel": 2}, **changes}
    return make_spec(trainable="anywhere:train", fidelity=None, **sections)


def desk(**changes):
    return Desk(make_controller(open_spec(**changes)))


@pytest.mark.parametrize("function", ["rounds", "by_worker", "tune_rounds"])
def test_a_function_runs_all_its_steps(sections, tmp_path, function):
    result = Sweep(trainable=f"ten.py:{function}", **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.state == "COMPLETED"
    assert result.trials.state.tolist() == ["COMPLETED"] * 2
    assert result.trials.step.tolist() == [10, 10]
    assert result.best.value == pytest.approx(result.best.params["x"] / 10)


def test_a_script_runs_to_its_end_and_is_told_no_last_step(sections, tmp_path, capfd):
    command = ["python", "script.py", "${args}", "--epochs=${HPOSVC_UNTIL}"]
    result = Sweep(command=command, collect={"stdout": r"loss=(?P<loss>\S+)"}, **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.trials.step.tolist() == [10, 10]
    assert capfd.readouterr().err.count("the last line was reached") == 2


def test_who_asks_for_steps_is_told_to_give_fidelity(sections, tmp_path):
    result = Sweep(trainable="ten.py:asks_for_steps", **sections).run(
        tmp_path / "h", progress=False
    )
    assert result.state == "FAILED"
    messages = api.load(api.Sweeps.open(tmp_path / "h"), result.sweep).failures()
    assert "steps() is how long a trial is" in messages["t0001"]
    assert "fidelity: {max: N}" in messages["t0001"]


def test_a_task_needs_fidelity():
    task = {"trainable": "trainables.zoo.digits:DigitsCNN", "parameters": {"lr": 0.1}}
    spec = {**specs.dump(open_spec()), **task}
    with pytest.raises(SpecError, match=r"fidelity: is missing; .*DigitsCNN is a Task"):
        specs.check(spec)
    specs.check({**spec, "fidelity": {"max": 3}})


def test_a_trial_completes_where_its_trainable_returns():
    bench = desk()
    order = bench.start()
    assert (order.first, order.until, order.milestones) == (1, None, ())
    for step in range(1, 8):
        bench.report(order, step, 1 / step)
    trial = bench.state.trials["t0001"]
    assert (trial.state, trial.step) == ("RUNNING", 7)
    bench.happen(Ended(1.0, order.id, "t0001", "returned"))
    assert (trial.state, trial.reason, trial.value) == ("COMPLETED", "", 1 / 7)
    assert summary.trials(bench.state, {})[0].step == 7


def test_a_lost_trial_goes_on_behind_its_last_report_and_may_have_nothing_left_to_do():
    bench = desk()
    order = bench.start()
    bench.report(order, 1, 0.5)
    bench.report(order, 2, 0.4)
    bench.fail(order, "infra")
    again = bench.start()
    assert (again.trial, again.first, again.until) == ("t0001", 3, None)
    assert again.start.step == 2
    bench.happen(Ended(1.0, again.id, "t0001", "returned"))
    assert bench.state.trials["t0001"].state == "COMPLETED"


@pytest.mark.parametrize(("how", "state"), [("", "PENDING"), ("returned", "COMPLETED")])
def test_a_pause_that_meets_the_end_leaves_nothing_to_do(how, state):
    """Only the ranks know whether the trainable was stopped or returned."""
    bench = desk()
    order = bench.start()
    bench.report(order, 1, 0.5)
    bench.happen(Decided(1.0, "t0001", order.id, 1, "park", "pause"))
    bench.happen(Ended(1.0, order.id, "t0001", how))
    assert bench.state.trials["t0001"].state == state


def test_a_trial_may_be_stopped_for_its_own_curve():
    bench = desk(scheduler={"type": "fifo", "plateau": {"patience": 2}})
    order = bench.start()
    answers = [bench.report(order, step, 1.0) for step in (1, 2, 3)]
    assert [answer.reason for answer in answers[-1]] == ["plateau"]
    bench.happen(Ended(1.0, order.id, "t0001"))
    assert bench.state.trials["t0001"].state == "STOPPED"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("two_of_three", "ended by itself at step 2, before fidelity.max"),
        (
            "four_of_three",
            "was ended at step 3, which is fidelity.max, and would have reported more",
        ),
    ],
)
def test_trials_of_another_length_are_told_once(sections, tmp_path, caplog, function, words):
    sections["fidelity"] = {"max": 3}
    result = Sweep(trainable=f"ten.py:{function}", **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.state == "COMPLETED"
    messages = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    assert len(messages) == 1
    assert "t0001" in messages[0]
