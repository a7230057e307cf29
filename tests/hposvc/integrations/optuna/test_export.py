"""`hposvc.optuna.to_study`: what a study says of a sweep is what its journal says."""

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

import hposvc
from hposvc.integrations.optuna.study import distribution
from searchers.domains import Choice, Constant, Float, Int
from searchers.space import Space

MIX = Space.from_dict(
    {"mix": {"shares": ["web", "code"], "max": {"web": 0.5}, "min": {"code": 0.2}}}
)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")


def run(objective, n_trials, **sections):
    quick = {"engine": "local", "tracking": {"send_to": []}, "search": "random"}
    return hposvc.optuna.run(objective, n_trials, progress=False, **quick, **sections)


def curve(trial):
    kind = trial.suggest_categorical("kind", ["a", None])
    x = trial.suggest_float("x", 0, 1) if kind == "a" else 2.0
    for epoch in range(9):
        trial.set_user_attr("epoch", epoch)
        trial.report(x + 1 / (epoch + 1), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    if x > 0.9 and kind == "a":
        raise ArithmeticError("too much")
    return x + 1 / 9


def test_a_study_has_the_trials_of_the_sweep(tmp_path):
    result = run(curve, 12, fidelity={"max": 9}, scheduler="asha")
    storage = f"sqlite:///{tmp_path}/study.db"
    hposvc.optuna.to_study("last", storage)
    study = optuna.load_study(study_name=result.sweep, storage=storage)
    assert study.metric_names == ["value"]
    assert study.user_attrs["hposvc:state"] == "COMPLETED"
    assert study.best_value == result.best.value
    assert study.best_params == result.best.params
    for row, trial in zip(result.trials.to_dict("records"), study.trials, strict=True):
        assert trial.user_attrs["hposvc:trial"] == row["trial"]
        pruned = trial.state == TrialState.PRUNED
        assert pruned == (row["state"] == "STOPPED")
        assert trial.user_attrs.get("hposvc:reason", "") == ("rung" if pruned else "")
        assert trial.value == row["value"]
        assert trial.last_step == row["step"]
        assert trial.user_attrs["epoch"] == row["step"] - 1
        assert trial.datetime_start <= trial.datetime_complete


def test_failures_limits_and_several_values_are_there():
    def objective(trial):
        x = trial.suggest_int("x", 1, 6)
        if x == 5:
            raise ArithmeticError("too much")
        trial.set_constraint("memory", x - 3)
        return x, -x

    options = {"limits": ["memory <= 0"], "failure": {"user_retries": 0}}
    run(objective, 6, directions=["minimize", "maximize"], **options)
    study = hposvc.optuna.to_study(hposvc.load("last"), study_name="mine")
    assert study.study_name == "mine"
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    by_x = {trial.params["x"]: trial for trial in study.trials}
    assert by_x[5].state == TrialState.FAIL
    assert "too much" in by_x[5].user_attrs["hposvc:message"]
    assert (by_x[4].values, by_x[4].constraints) == ([4, -4], {"memory <= 0": 1})
    assert {trial.params["x"] for trial in study.best_trials} == {1}


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Float(0, 1), FloatDistribution(0, 1)),
        (Float(1e-3, 1, log=True), FloatDistribution(1e-3, 1, log=True)),
        (Float(0, 1, step=0.25), FloatDistribution(0, 1, step=0.25)),
        (Int(1, 9, step=2), IntDistribution(1, 9, step=2)),
        (Int(1, 9, log=True), IntDistribution(1, 9, log=True)),
        (Choice(("a", None)), CategoricalDistribution(["a", None])),
        (Constant(3), CategoricalDistribution([3])),
        (MIX["mix.web"], FloatDistribution(0, 0.5)),
        (MIX["mix.code"], FloatDistribution(0.2, 1)),
    ],
)
def test_each_domain_is_a_distribution(domain, expected):
    assert distribution(domain) == expected
