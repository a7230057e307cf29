"""`hposvc.optuna.from_study`: the sweep says of each trial what the study says."""

import optuna
import pytest

import hposvc
from hposvc.errors import SpecError


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def curve(trial):
    kind = trial.suggest_categorical("kind", ["a", None])
    x = trial.suggest_float("x", 0.01, 1, log=True) if kind == "a" else 2.0
    for epoch in range(5):
        trial.report(x + 1 / (epoch + 1), epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    if trial.number == 7:
        raise ArithmeticError("too much")
    return x


def study_of(objective, n_trials, **options):
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(sampler=sampler, **options)
    study.optimize(objective, n_trials=n_trials, catch=ArithmeticError)
    return study


def test_a_sweep_has_the_trials_of_the_study_and_another_learns_from_it():
    study = study_of(curve, 30)
    sweep = hposvc.optuna.from_study(study)
    trials = list(sweep.result().record.state.trials.values())
    assert len(trials) == 30
    assert sweep.best().params == study.best_params
    assert sweep.best().value == study.best_value
    for ours, theirs in zip(trials, study.trials, strict=True):
        assert ours.params == theirs.params
        if theirs.state == optuna.trial.TrialState.FAIL:
            assert ours.state == "FAILED"
        else:
            assert ours.value == (theirs.value if theirs.value is not None else ours.curve[-1][1])
            reported = [
                theirs.intermediate_values[step] for step in sorted(theirs.intermediate_values)
            ]
            assert [value for _, value in ours.curve][: len(reported)] == reported
    learned = hposvc.optuna.run(
        lambda trial: trial.suggest_float("x", 0.01, 1, log=True),
        2,
        warm_start={"from": [sweep.id], "top": 1},
        engine="local",
        tracking={"send_to": []},
        progress=False,
    )
    assert learned.record.state.trials["t0001"].params["x"] == study.best_params["x"]


def test_several_values_and_constraints_come_along():
    def objective(trial):
        x = trial.suggest_int("x", 1, 8)
        trial.set_constraint("memory", x - 4)
        return x, -x

    study = study_of(objective, 6, directions=["minimize", "minimize"])
    result = hposvc.optuna.from_study(study, name="mine").result()
    assert result.sweep.startswith("mine-")
    trials = result.record.state.trials.values()
    assert [trial.values for trial in trials] == [tuple(each.values) for each in study.trials]
    assert [trial.kept for trial in trials] == [each.params["x"] <= 4 for each in study.trials]


def test_trials_of_other_ranges_are_left_out_where_parameters_are_given(caplog):
    study = study_of(lambda trial: trial.suggest_float("x", 0, 1), 3)
    study.optimize(lambda trial: trial.suggest_float("x", 5, 6), n_trials=2)
    with pytest.raises(SpecError, match="the study suggests x from"):
        hposvc.optuna.from_study(study)
    given = {"x": {"min": 0.0, "max": 1.0}}
    assert len(hposvc.optuna.from_study(study, parameters=given).trials()) == 3
    assert "trial 3 of the study is left out: x: is 5" in caplog.text


def test_a_study_without_trials_is_refused():
    with pytest.raises(SpecError, match="suggests nothing"):
        hposvc.optuna.from_study(optuna.create_study())
