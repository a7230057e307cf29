"""`hposvc.optuna.run`: objectives for Optuna as sweeps, unchanged."""

import subprocess
import sys

import optuna
import pytest

import hposvc
from hposvc.errors import SpecError
from hposvc.state.summary import unused
from searchers.space import Space


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")


X = {"x": {"min": 0.0, "max": 1.0}}


def run(objective, n_trials=6, **options):
    """Run an objective in this process, without what takes seconds at the end."""
    quick = {"engine": "local", "progress": False, "tracking": {"send_to": []}}
    return hposvc.optuna.run(objective, n_trials, **{**quick, **options})


def network(trial):
    """Like an example of Optuna's: suggestions between uses of the values."""
    size = 1.0
    for layer in range(trial.suggest_int("layers", 1, 3)):
        size *= trial.suggest_int(f"units_{layer}", 4, 128, log=True)
        size *= 1 - trial.suggest_float(f"dropout_{layer}", 0.2, 0.5)
    if trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "sgd":
        trial.suggest_float("momentum", 0, 1, step=0.1)
    rate = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    for epoch in range(9):
        value = (rate - 0.01) ** 2 + size / 1e9 + 1 / (epoch + 1)
        trial.report(value, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


def test_an_objective_that_reports_is_stopped_early_and_its_best_is_found():
    result = run(network, 12, fidelity={"max": 9}, scheduler="asha")
    states = {*result.trials["state"]}
    assert states == {"COMPLETED", "STOPPED"}
    assert result.best.step == 9
    last_layer = result.best.params["layers"] - 1
    assert {f"units_{last_layer}", "lr", "optimizer"} <= {*result.best.params}


def test_what_an_objective_suggests_is_found_with_its_conditions():
    found = Space.from_dict(hposvc.optuna.find_parameters(network))
    conditions = {name: dict(domain.when) for name, domain in found.items() if domain.when}
    assert conditions == {
        "units_1": {"layers": (2, 3)},
        "dropout_1": {"layers": (2, 3)},
        "units_2": {"layers": (3,)},
        "dropout_2": {"layers": (3,)},
        "momentum": {"optimizer": ("sgd",)},
    }
    assert found["momentum"].count == 11
    assert found["lr"].log


def test_several_objectives_are_stopped_early_which_optuna_refuses():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for epoch in range(9):
            trial.report([x + 1 / (epoch + 1), x * x], epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x + 1 / 9, x * x

    result = run(
        objective,
        12,
        directions=["minimize", "minimize"],
        metric_names=["loss", "size"],
        fidelity={"max": 9},
        scheduler="asha",
    )
    assert {*result.trials["state"]} == {"COMPLETED", "STOPPED"}
    assert {"loss", "size"} <= {*result.pareto}


def test_constraints_and_numbers_among_the_attributes_are_metrics():
    def objective(trial):
        x = trial.suggest_int("x", 1, 8)
        trial.set_user_attr("twice", 2 * x)
        trial.set_user_attr("note", "not a number")
        trial.set_constraint("memory", x - 4)
        return -x

    result = run(objective, 8, search="grid", limits=["memory <= 0"])
    assert result.best.params == {"x": 4}
    assert (result.best.metrics["memory"], result.best.metrics["twice"]) == (0, 8)


def test_what_is_returned_after_reports_is_the_last_report():
    def objective(trial):
        trial.suggest_float("x", 0, 1)
        for epoch in range(3):
            trial.report(epoch, epoch)
        return 10.0

    result = run(objective, 1)
    assert list(result.curves["value"]) == [0, 1, 2, 10]
    assert result.best.value == 10


def branching(trial):
    """Suggest, in a branch that no search for parameters sees, values of each kind."""
    x = trial.suggest_float("x", 0, 1)
    value = x
    if x != 0.5:
        value += trial.suggest_float("late", 1e-3, 2, log=True)
        assert trial.suggest_float("late", 1e-3, 2, log=True) == trial.params["late"]
        value += trial.suggest_int("many", 1, 9)
        value += len(trial.suggest_categorical("kind", ["a", "bb", "ccc"]))
        trial.suggest_int("only", 3, 3)
    return value


def test_a_parameter_that_was_not_found_is_decided_in_the_trial_and_journaled():
    result = run(branching, 4, parameters=X, search="random")
    journal = {}
    for event in result.events():
        if event.kind == "suggested":
            journal.setdefault(event.trial, {})[event.name] = event.value
    assert list(result.trials["state"]) == ["COMPLETED"] * 4
    for row in result.trials.to_dict("records"):
        own = journal[row["trial"]]
        assert [*own] == ["late", "many", "kind"]
        assert {name: row[name] for name in own} == own
        assert row["value"] == row["x"] + own["late"] + own["many"] + len(own["kind"])
    assert len({own["late"] for own in journal.values()}) == 4
    assert result.best.params == {"x": result.best.params["x"], **journal[result.best.trial]}
    study = hposvc.optuna.to_study(result.sweep)
    assert study.best_params == result.best.params
    late = optuna.distributions.FloatDistribution(1e-3, 2, log=True)
    assert {trial.distributions["late"] for trial in study.trials} == {late}


def test_a_trial_that_is_tried_again_decides_the_same(tmp_path):
    def objective(trial):
        trial.suggest_float("x", 0, 1)
        late = trial.suggest_float("late", 0, 1)
        with (tmp_path / "asked").open("a") as file:
            file.write(f"{trial.number} {late}\n")
        if (tmp_path / "asked").read_text().count(f"{trial.number} ") == 1:
            raise OSError("the first try of a trial fails")
        for epoch in range(3):
            trial.report(late + epoch, epoch)
        return late

    result = run(objective, 2, parameters=X, failure={"user_retries": 1})
    asked = (tmp_path / "asked").read_text().split("\n")[:-1]
    assert len(asked) == 4
    assert len({*asked}) == 2
    assert list(result.trials["state"]) == ["COMPLETED"] * 2
    assert list(result.trials["attempts"]) == [2, 2]


KILLED = """
import os
from pathlib import Path

def objective(trial):
    x, late = trial.suggest_float("x", 0, 1), trial.suggest_float("late", 0, 1)
    with Path("asked").open("a") as file:
        print(trial.number, x, late, file=file)
    if Path("asked").read_text().count("\\n") in (1, 3):
        if trial.number:
            trial.report(late, 0)
        os._exit(9)  # as by SIGKILL, once before the first report and once after it
    return late
"""
RUNS = """
import hposvc
hposvc.Sweep(
    "mine.py:objective", parameters={"x": {"min": 0.0, "max": 1.0}}, trials={"max": 2},
    metric={"name": "value", "goal": "minimize"}, engine="local", tracking={"send_to": []},
).run(progress=False)
"""


@pytest.mark.full
def test_a_sweep_whose_process_is_killed_decides_the_same_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(KILLED)
    for program in (RUNS, "import hposvc; hposvc.load('last').resume(progress=False)"):
        assert subprocess.run([sys.executable, "-c", program]).returncode == 9
    result = hposvc.load("last").resume(progress=False)
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    assert [line[0] for line in asked] == ["0", "0", "1", "1"]
    assert asked[0] == asked[1]
    assert asked[2] == asked[3]
    assert [f"{late}" for late in result.trials["late"]] == [asked[0][2], asked[2][2]]


def test_a_misspelled_parameter_is_told_at_the_end_and_in_status(capfd):
    def objective(trial):
        return trial.suggest_float("lr", 0, 1)

    misspelled = {"lrr": {"min": 0.0, "max": 1.0}}
    run(objective, 2, parameters=misspelled, progress=True)
    said = " ".join(capfd.readouterr().err.split())
    assert "lr is drawn at random, not searched" in said
    status = [sys.executable, "-m", "hposvc", "status", "last"]
    shown = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    assert "did the spec mean it by 'lrr'?" in " ".join(shown.split())
    assert "lrr is searched for nothing: no trial has asked for it" in said
    assert "lrr is searched for nothing: no trial has asked for it" in " ".join(shown.split())


def test_a_parameter_that_no_trial_asks_for_is_told_but_not_one_of_a_branch():
    def objective(trial):
        rate = trial.suggest_float("lr", 0, 1)
        if trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "sgd":
            rate += trial.suggest_float("momentum", 0, 1)
        for epoch in range(9):
            trial.report(rate + 1 / (epoch + 1), epoch)
        return rate

    ranges = {name: {"min": 0.0, "max": 1.0} for name in ("lr", "momentum", "dropout")}
    parameters = {**ranges, "optimizer": {"values": ["adam", "sgd"]}, "width": 64}
    options = {"fidelity": {"max": 9}, "scheduler": "asha", "search": "random"}
    state = run(objective, 9, parameters=parameters, **options).record.state
    assert {trial.state for trial in state.trials.values()} == {"COMPLETED", "STOPPED"}
    assert {trial.params["optimizer"] for trial in state.trials.values()} == {"adam", "sgd"}
    assert unused(state) == ["dropout"]


def test_replicates_have_the_values_of_their_finalist():
    options = {"finalists": {"top": 1, "seeds": 3}, "fidelity": {"max": 1}}
    result = run(branching, 3, parameters=X, **options)
    assert result.best.estimate.values == [result.best.value] * 3


@pytest.mark.parametrize(
    ("suggest", "why"),
    [
        (lambda trial: trial.suggest_float("late", 2, 1), "the smaller first"),
        (lambda trial: trial.suggest_int("late", 0, 9, log=True), "a number above 0"),
        (lambda trial: trial.suggest_categorical("late", [int, float]), "look the object up"),
        (lambda trial: trial.suggest_float("", 0, 1), "give it a name of 1 to 250 characters"),
    ],
)
def test_what_can_t_be_decided_says_why(suggest, why):
    options = {"failure": {"user_retries": 0}, "parameters": {"x": 1}}
    (text,) = {*run(lambda trial: suggest(trial) or 0, 1, **options).record.failures().values()}
    assert why in text


def test_a_range_that_depends_on_a_value_is_refused_where_it_matters():
    def objective(trial):
        depth = trial.suggest_int("depth", 1, 8)
        return trial.suggest_int("leaves", 1, depth)

    with pytest.raises(SpecError, match="suggests leaves from"):
        run(objective)
    given = {"depth": {"min": 1, "max": 8}, "leaves": {"min": 1, "max": 8}}
    mended = run(objective, 4, parameters=given, constraints=["leaves <= depth"])
    assert list(mended.trials["state"]) == ["COMPLETED"] * 4
    (why,) = {*run(objective, 1, parameters={"depth": 1, "leaves": 8}).record.failures().values()}
    assert "leaves is 8, and the objective suggests 1 to 1" in why


def test_an_objective_that_fails_before_it_suggests_says_why():
    def objective(trial):
        raise OSError("no such data")

    with pytest.raises(OSError, match="no such data"):
        hposvc.optuna.find_parameters(objective)
    with pytest.raises(SpecError, match="suggests nothing"):
        hposvc.optuna.find_parameters(lambda trial: 1)


@pytest.mark.ray
@pytest.mark.long
def test_parameters_decided_in_trials_are_journaled_on_ray_too():
    options = {"engine": "ray", "search": "random", "resources": {"workers": 2}}
    result = run(branching, 2, parameters=X, **options)
    suggested = [event.name for event in result.events() if event.kind == "suggested"]
    assert sorted(suggested) == sorted(["late", "many", "kind"] * 2), "rank 0's"
    assert list(result.trials["late"].notna()) == [True, True]
    assert [event.unused for event in result.events() if event.kind == "ended"] == [(), ()]
