"""`hposvc.optuna.run`: objectives for Optuna as sweeps, unchanged."""

import functools

import optuna
import pytest

import hposvc
from hposvc.errors import SpecError
from searchers.space import Space


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")


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


def test_a_returned_value_alone_is_the_result():
    result = run(lambda trial: (trial.suggest_float("x", -5, 5) - 1) ** 2, direction="minimize")
    assert result.best.value == (result.best.params["x"] - 1) ** 2
    assert list(result.trials["state"]) == ["COMPLETED"] * 6


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


def test_callables_that_have_no_name_are_objectives_too():
    class Objective:
        def __call__(self, trial):
            return trial.suggest_float("x", 0, 1)

    def shifted(trial, by):
        return trial.suggest_float("x", 0, 1) + by

    for objective in (Objective(), functools.partial(shifted, by=1), lambda trial: network(trial)):
        assert run(objective, 2).state == "COMPLETED"


def test_a_spec_names_an_objective_as_any_function(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def objective(trial):\n    return trial.suggest_float('x', 0, 1)\n"
    )
    sweep = hposvc.Sweep(
        f"{tmp_path}/mine.py:objective",
        parameters={"x": {"min": 0.25, "max": 0.75}},  # narrower than it asks for
        metric={"name": "loss", "goal": "minimize"},
        trials={"max": 3},
        engine="local",
        tracking={"send_to": []},
    )
    assert 0.25 <= sweep.run(progress=False).best.value <= 0.75


def test_a_parameter_that_was_not_found_is_named_with_what_to_add():
    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        return trial.suggest_float("late", 0, 2) if x != 0.5 else x

    result = run(objective, 1, parameters={"x": 0.25})
    (why,) = {*result.record.failures().values()}
    assert "suggests 'late', which is no parameter of this trial" in why
    assert "add late: {'min': 0, 'max': 2, 'type': 'float'}" in why


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


def test_a_call_ends_some_time_after_the_last_suggestion():
    def objective(trial):
        trial.suggest_float("x", 0, 1)
        while True:
            pass

    assert [*hposvc.optuna.find_parameters(objective, seconds=0.01)] == ["x"]


def test_an_objective_that_fails_before_it_suggests_says_why():
    def objective(trial):
        raise OSError("no such data")

    with pytest.raises(OSError, match="no such data"):
        hposvc.optuna.find_parameters(objective)
    with pytest.raises(SpecError, match="suggests nothing"):
        hposvc.optuna.find_parameters(lambda trial: 1)


@pytest.mark.ray
@pytest.mark.long
def test_trials_run_in_parallel_on_ray():
    result = run(network, 4, engine="ray", fidelity={"max": 9}, scheduler="asha")
    assert result.state == "COMPLETED"
    assert len(result.trials) == 4
