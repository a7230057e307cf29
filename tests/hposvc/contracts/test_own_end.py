"""Trials of a sweep without fidelity run until their trainable returns."""

import math
from io import StringIO
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from simulated_sweeps import Desk, fold, make_controller

from hposvc import Sweep, api
from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Attached, Decided, Ended, Ordered, Proposed, Reported, from_json, to_json
from hposvc.state import summary
from hposvc.views.dashboard import Panels
from trainables.order import Order

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
    return specs.load(
        {
            "trainable": "anywhere:train",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1}},
            "search": "random",
            "trials": {"max": 3, "parallel": 2},
            **changes,
        }
    )


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


def test_a_returned_value_is_the_only_step(sections, tmp_path):
    result = Sweep(trainable="ten.py:value", **sections).run(tmp_path / "home", progress=False)
    assert result.trials.step.tolist() == [1, 1]
    assert result.trials.state.tolist() == ["COMPLETED"] * 2


def test_a_script_runs_to_its_end_and_is_told_no_last_step(sections, tmp_path, capfd):
    command = ["python", "script.py", "${args}", "--epochs=${HPOSVC_UNTIL}"]
    result = Sweep(command=command, collect={"stdout": r"loss=(?P<loss>\S+)"}, **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.trials.step.tolist() == [10, 10]
    assert capfd.readouterr().err.count("the last line was reached") == 2


@pytest.mark.full
@pytest.mark.ray
@pytest.mark.long
def test_on_ray_a_function_of_tune_runs_all_its_steps_unchanged(sections, tmp_path):
    sections["engine"] = "ray"
    sections["resources"] = {"cpus_per_worker": 0.5}
    result = Sweep(trainable="ten.py:tune_rounds", **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.trials.state.tolist() == ["COMPLETED"] * 2
    assert result.trials.step.tolist() == [10, 10]


def test_who_asks_for_steps_is_told_to_give_fidelity(sections, tmp_path):
    result = Sweep(trainable="ten.py:asks_for_steps", **sections).run(
        tmp_path / "h", progress=False
    )
    assert result.state == "FAILED"
    messages = api.load(api.Sweeps.open(tmp_path / "h"), result.sweep).failures()
    assert "steps() is how long a trial is" in messages["t0001"]
    assert "fidelity: {max: N}" in messages["t0001"]


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "bohb", "median"])
def test_a_scheduler_that_compares_steps_needs_fidelity(scheduler):
    with pytest.raises(SpecError, match=rf"scheduler {scheduler} .* give fidelity: {{max: N}}"):
        open_spec(scheduler=scheduler)


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
    assert summary.trials(bench.state, {})[0]["step"] == 7


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


def test_a_finalist_is_trained_to_its_own_end():
    bench = desk(trials={"max": 1}, finalists={"top": 1, "seeds": 2})
    order = bench.start()
    bench.report(order, 1, 0.5)
    bench.happen(Ended(1.0, order.id, "t0001", "returned"))
    for number in (1, 2):
        replicate = bench.start()
        assert (replicate.replicate, replicate.until) == (number, None)
        bench.report(replicate, 1, 0.5)
        bench.report(replicate, 2, 0.3)
        bench.happen(Ended(1.0, replicate.id, "t0001", "returned"))
    assert bench.state.replicates.values("t0001") == [0.3, 0.3]


def test_the_live_table_shows_the_step_alone():
    bench = desk()
    order = bench.start()
    bench.report(order, 7, 0.5)
    console = Console(width=100, record=True, file=StringIO())
    console.print(Panels("s").draw(bench.state, 1.0))
    row = next(
        line for line in console.export_text().splitlines() if "t0001 " in line and "▄" in line
    )
    assert row.split()[1:4] == ["t0001", "7", "0.5"]


def live_through(one, rng):
    """Let forty random things happen to open-ended trials."""
    out = []
    for _ in range(40):
        one.time += 1.0
        if not out:
            if one.state.trials.waiting or len(one.state.trials) < 3:
                out.append(one.start())
            continue
        order = out[0]
        trial = one.state.trials[order.trial]
        match rng.choice(["report", "report", "report", "return", "fail", "park", "attach"]):
            case "report":
                step = max(order.first, trial.step + 1)
                one.report(order, step, rng.choice([rng.random(), rng.random(), math.nan]))
            case "return":
                one.happen(Ended(one.time, order.id, order.trial, rng.choice(["", "returned"])))
                out.clear()
            case "fail":
                one.fail(order, rng.choice(["infra", "preempt", "user"]))
                out.clear()
            case "park":
                one.happen(Decided(one.time, trial.id, order.id, trial.step, "park", "pause"))
            case "attach":
                one.happen(Attached(one.time, "here:1"))
                out.clear()


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["last", "best", "mean_3"]))
def test_a_replayed_journal_gives_the_same_state(rng: Random, select):
    spec = open_spec(metric={"name": "loss", "goal": "minimize", "select": select})
    bench = Desk(make_controller(spec))
    live_through(bench, rng)
    written = [from_json(event.kind, event.time, to_json(event)) for event in bench.log]
    again = fold(spec, written)
    assert summary.trials(again, {}) == summary.trials(bench.state, {})
    assert (again.front, again.trials.waiting) == (bench.state.front, bench.state.trials.waiting)
    completed = [trial for trial in again.trials.values() if trial.state == "COMPLETED"]
    assert all(trial.returned for trial in completed)


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


def test_sweeps_of_an_earlier_version_had_trials_of_one_step():
    """The journal of such a sweep must give the states that it gave then."""
    spec = specs.load(
        {
            "trainable": "my.module:Name",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"x": {"min": 0.0, "max": 1.0}},
            "trials": {"max": 1},
        }
    )
    order = Order(1, "t0001", {"x": 0.5}, None, 1, 1)
    state = fold(
        spec,
        [
            Attached(0.0, "host:1"),
            Proposed(0.0, "t0001", {"x": 0.5}, {}, 1),
            Ordered(0.0, order),
            Reported(1.0, 1, "t0001", 1, {"loss": 0.1}),
            Ended(1.0, 1, "t0001"),
        ],
    )
    trial = state.trials["t0001"]
    assert (trial.state, trial.reason, trial.completed(spec.last_step)) == ("COMPLETED", "", True)
