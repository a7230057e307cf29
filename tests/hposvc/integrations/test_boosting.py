"""XGBoost and LightGBM in real sweeps, by the line of docs/how-to/frameworks.md."""

import framework_sweeps
import lightgbm
import numpy as np
import pages
import pytest
import xgboost
from framework_sweeps import sweep

import hposvc

BLOCK = pages.block("how-to/frameworks.md", "import xgboost")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * RNG.normal(size=300) > 0).astype(int)
ROUNDS, EVERY = 18, 2


def boost_xgboost(rate, count):
    class Count(xgboost.callback.TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            count(model.num_boosted_rounds())
            return False

    held_out = xgboost.DMatrix(X[200:], Y[200:])
    return xgboost.train(
        {"objective": "binary:logistic", "eta": rate, "max_depth": 2, "nthread": 1},
        xgboost.DMatrix(X[:200], Y[:200]),
        num_boost_round=hposvc.xgboost.rounds_left(ROUNDS),
        evals=[(held_out, "val")],
        verbose_eval=False,
        xgb_model=hposvc.xgboost.checkpoint(),
        callbacks=[Count(), hposvc.xgboost.Report(every=EVERY)],
    )


def boost_lightgbm(rate, count):
    def counting(env):
        count(env.model.current_iteration())

    counting.before_iteration = True
    data = lightgbm.Dataset(X[:200], Y[:200])
    return lightgbm.train(
        {
            "objective": "binary",
            "metric": "binary_logloss",
            "learning_rate": rate,
            "num_leaves": 3,
            "num_threads": 1,
            "verbosity": -1,
        },
        data,
        num_boost_round=ROUNDS,
        valid_sets=[lightgbm.Dataset(X[200:], Y[200:], reference=data)],
        valid_names=["val"],
        init_model=hposvc.lightgbm.checkpoint(),
        callbacks=[counting, hposvc.lightgbm.Report(every=EVERY)],
    )


LIBRARIES = {
    "xgboost": (boost_xgboost, "val/logloss"),
    "lightgbm": (boost_lightgbm, "val/binary_logloss"),
}


@pytest.fixture(params=LIBRARIES, scope="module")
def swept(request, tmp_path_factory):
    """The library's name, the result of a sweep under ASHA, and the rounds of its trials."""
    boost, metric = LIBRARIES[request.param]
    folder, steps = tmp_path_factory.mktemp(request.param), ROUNDS // EVERY
    return request.param, *framework_sweeps.swept(folder, metric, (1e-4, 0.5), boost, steps, 9, 3)


def test_trials_stop_at_rungs_and_go_on_without_repeating_a_round(swept):
    _, result, begun = swept
    framework_sweeps.check_rungs(result, begun, lambda step: range(step * EVERY))


def test_the_values_are_those_of_a_training_without_pauses(swept, capsys):
    name, result, _ = swept
    trial = framework_sweeps.longest(result)
    boost, metric = LIBRARIES[name]
    boost(trial["rate"], lambda rounds: None)  # outside a sweep: printed
    printed, steps = capsys.readouterr().err, ROUNDS // EVERY
    framework_sweeps.check_curves(result, trial["trial"], printed, (metric,), steps)


def test_the_checkpoint_is_the_model(swept):
    name, result, _ = swept
    best = result.best
    if name == "xgboost":
        model = xgboost.Booster(model_file=best.checkpoint / "model.ubj")
        assert model.num_boosted_rounds() == best.step * EVERY
    else:
        model = lightgbm.Booster(model_file=best.checkpoint / "model.txt")
        assert model.current_iteration() == best.step * EVERY


@pytest.mark.parametrize("breaks_at", [11, ROUNDS], ids=["amid a training", "after the last round"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_retried_trial_is_as_long_as_any_other(library, breaks_at, tmp_path):
    """Without fidelity, nobody but the callback knows where the trial ends."""
    boost, metric = LIBRARIES[library]

    def train(config):
        fail_once = framework_sweeps.break_once(tmp_path, breaks_at)
        boost(config["rate"], fail_once)
        fail_once(ROUNDS)

    retries = {"failure": {"user_retries": 1}}
    result = sweep(train, tmp_path / "home", metric, (0.1, 0.5), **retries)
    assert [*result.trials["attempts"]] == [2]
    assert [*result.trials["state"]] == ["COMPLETED"]
    assert [*result.curves["step"]] == [*range(1, ROUNDS // EVERY + 1)]


def test_a_metric_whose_name_no_tracker_takes_is_renamed(tmp_path):
    def train(config):
        xgboost.train(
            {"objective": "binary:logistic", "eval_metric": "error@0.7", "nthread": 1, **config},
            xgboost.DMatrix(X, Y),
            3,
            evals=[(xgboost.DMatrix(X, Y), "val")],
            verbose_eval=False,
            callbacks=[hposvc.xgboost.Report()],
        )

    result = hposvc.Sweep(
        train,
        metric={"name": "val/error@0.7", "goal": "minimize"},
        parameters={"eta": {"min": 0.1, "max": 0.5}},
        trials={"max": 1},
        scheduler="fifo",
        engine="local",
        tracking={"send_to": []},
    ).run(tmp_path, progress=False)
    assert 0 < result.best.value < 0.5


def test_cross_validation_is_refused():
    with pytest.raises(TypeError, match=r"xgboost\.cv trains several models"):
        xgboost.cv({}, xgboost.DMatrix(X, Y), 2, callbacks=[hposvc.xgboost.Report()])
    with pytest.raises(TypeError, match=r"lightgbm\.cv trains several models"):
        lightgbm.cv(
            {"objective": "binary", "verbosity": -1},
            lightgbm.Dataset(X, Y),
            2,
            callbacks=[hposvc.lightgbm.Report()],
        )


def train_lightgbm(params):
    quiet = {"num_threads": 1, "verbosity": -1}
    return lightgbm.train(
        {**quiet, **params}, lightgbm.Dataset(X, Y), 1, callbacks=[hposvc.lightgbm.Report()]
    )


@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_dept", "max_depth"), ("min_child_sample", "min_child_samples")]
)
def test_a_misspelled_parameter_of_lightgbm_is_refused(wrong, meant):
    with pytest.raises(ValueError, match=f"^{wrong}: no parameter of .*; did you mean '{meant}'"):
        train_lightgbm({wrong: 3})


def test_xgboost_itself_warns_of_a_misspelled_parameter():
    with pytest.warns(UserWarning, match="max_dept.* are not used"):
        xgboost.train(
            {"verbosity": 1, "max_dept": 3},
            xgboost.DMatrix(X, Y),
            1,
            callbacks=[hposvc.xgboost.Report()],
        )


def squared(predicted, data):
    return predicted - data.get_label(), np.ones_like(predicted)


def squared_of_scikit_learn(truth, predicted):
    return predicted - truth, np.ones_like(predicted)


def test_parameters_of_lightgbm_that_are_no_misspellings_pass():
    train_lightgbm({"my_own": 1, "n_folds": 5, "test_size": 0.2})
    train_lightgbm({"n_estimators": 2, "eta": 0.1, "reg_lambda": 1, "min_child_samples": 3})
    train_lightgbm({"objective": squared})
    train_lightgbm({**lightgbm.LGBMRegressor(n_estimators=2).get_params(), "verbosity": -1})
    arguments = {"n_estimators": 2, "n_jobs": 1, "random_state": 1, "verbosity": -1}
    for model in (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor):
        fitted = model(importance_type="gain", **arguments)
        fitted.fit(X, Y, callbacks=[hposvc.lightgbm.Report()])
    fitted = lightgbm.LGBMRegressor(objective=squared_of_scikit_learn, **arguments)
    fitted.fit(X, Y, callbacks=[hposvc.lightgbm.Report()])


def test_lightgbm_reports_a_round_before_it_stops_early(capsys):
    """early_stopping ends the round in which it raises; the report comes before it."""
    held_out = lightgbm.Dataset(X[200:], 1 - Y[200:])
    model = lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbosity": -1},
        lightgbm.Dataset(X[:200], Y[:200]),
        20,
        valid_sets=[held_out],
        callbacks=[lightgbm.early_stopping(2, verbose=False), hposvc.lightgbm.Report()],
    )
    assert model.best_iteration == 1
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize("every", [0, 1.5, "2"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_step_of_no_whole_rounds_is_refused(library, every):
    with pytest.raises(ValueError, match="a whole number from 1 on"):
        getattr(hposvc, library).Report(every=every)


def test_the_block_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path))
    names = {}
    exec(compile(BLOCK, "how-to/frameworks.md", "exec"), names)
    assert names["result"].best.value < 0.3
