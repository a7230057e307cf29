"""`hposvc.sklearn.SweepSearchCV`, beside scikit-learn's own searches, and its page in docs."""

import inspect
import pickle
import re
import signal
import subprocess
import sys
from subprocess import PIPE

import numpy as np
import optuna
import pages
import pytest
from joblib import parallel_config
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import hposvc
from hposvc import api
from hposvc.errors import SpecError
from hposvc.integrations.sklearn import SweepSearchCV

BLOCKS = pages.blocks("how-to/scikit-learn.md")
X, Y = load_iris(return_X_y=True)
GRID = {"max_depth": [1, 2, 3], "criterion": ["gini", "entropy"]}
# What scikit-learn excuses GridSearchCV from, in the words of its own list.
EXCUSED = {
    "check_supervised_y_2d": "DataConversionWarning not caught",
    "check_requires_y_none": "Doesn't fail gracefully",
}


class Easy(ClassifierMixin, BaseEstimator):
    """Learns the most frequent class, whatever the `level`."""

    def __init__(self, level=1):
        self.level = level

    def fit(self, x, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.most_ = self.classes_[counts.argmax()]
        return self

    def predict(self, x):
        return np.full(len(x), self.most_)


class Picky(Easy):
    """Can't be fitted with some values of `level`."""

    def fit(self, x, y):
        if self.level > 2:
            raise ArithmeticError(f"level {self.level} is too much")
        return super().fit(x, y)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path}")


def search(estimator, parameters, **options):
    """Return a search with quick settings."""
    quick = {"n_trials": 4, "cv": 2, "search": "random", "random_state": 0}
    return SweepSearchCV(estimator, parameters, **{**quick, **options})


@pytest.mark.full
@pytest.mark.parametrize(
    "estimator",
    [
        search(Ridge(), {"alpha": [0.1, 1.0]}, error_score="raise"),
        search(LogisticRegression(), {"C": [0.1, 1.0]}, error_score="raise"),
    ],
    ids=["regressor", "classifier"],
)
def test_it_passes_the_checks_of_scikit_learn(estimator):
    check_estimator(estimator, expected_failed_checks=EXCUSED)


def test_it_finds_what_a_grid_search_finds_with_the_same_columns():
    tree = DecisionTreeClassifier(random_state=0)
    ours = search(tree, GRID, n_trials=10, search="grid", return_train_score=True).fit(X, Y)
    theirs = GridSearchCV(tree, GRID, cv=2, return_train_score=True).fit(X, Y)
    assert set(ours.cv_results_) == {*theirs.cv_results_, "trial"}
    assert ours.best_score_ == theirs.best_score_
    found = {tuple(sorted(params.items())) for params in ours.cv_results_["params"]}
    assert found == {tuple(sorted(params.items())) for params in theirs.cv_results_["params"]}
    by_params = {str(sorted(p.items())): n for n, p in enumerate(theirs.cv_results_["params"])}
    rows = [by_params[str(sorted(params.items()))] for params in ours.cv_results_["params"]]
    for column in ("split0_test_score", "mean_test_score", "std_train_score", "rank_test_score"):
        assert list(ours.cv_results_[column]) == list(theirs.cv_results_[column][rows])
    assert ours.score(X, Y) == ours.best_estimator_.score(X, Y)
    assert list(ours.predict(X)) == list(ours.best_estimator_.predict(X))


def test_the_sweep_is_recorded_with_every_trial():
    found = search(Ridge(), {"alpha": loguniform(1e-3, 1e3)}, name="ridges").fit(X, Y)
    result = hposvc.load(found.sweep_).result()
    assert (result.state, found.sweep_.split("-")[0]) == ("COMPLETED", "ridges")
    assert list(result.trials["trial"]) == list(found.cv_results_["trial"])
    assert result.best.params == found.best_params_
    assert result.best.value == found.best_score_
    assert result.best.trial == found.cv_results_["trial"][found.best_index_]
    assert "std_test_score" in result.best.metrics


def test_the_same_seed_makes_the_same_search_on_the_same_random_folds():
    folds = ShuffleSplit(2, random_state=None)  # drawn anew by each call of split
    # Equal estimators on the same folds have equal scores.
    same = search(Ridge(), {"copy_X": [True, False]}, cv=folds).fit(X, Y)
    first, second = same.cv_results_["mean_test_score"]
    assert first == second
    one, other = (
        search(Ridge(), {"alpha": {"min": 0.1, "max": 9.0}}, search="gp", n_trials=6).fit(X, Y)
        for _ in range(2)
    )
    assert one.cv_results_["params"] == other.cv_results_["params"]


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        (uniform(1, 2), {"min": 1.0, "max": 3.0, "type": "float"}),
        (loguniform(1e-3, 10), {"min": 1e-3, "max": 10.0, "type": "float", "log": True}),
        (randint(1, 9), {"min": 1, "max": 8, "type": "int"}),
        ({"min": 1, "max": 4}, {"min": 1, "max": 4}),
        (np.array([1.0, 2.0, 4.0]), {"values": [1.0, 2.0, 4.0], "ordered": True}),
        (["svd", None, 2], {"values": ["svd", None, 2]}),
        (range(1, 20, 6), {"values": [1, 7, 13, 19], "ordered": True}),
        (optuna.distributions.IntDistribution(1, 9, log=True), {"min": 1, "max": 9, "log": True}),
        (np.float64(3.5), 3.5),
    ],
)
def test_ranges_come_in_the_words_of_several_libraries(given, declared):
    found = search(Easy(), {"level": given}, n_trials=1).fit(X, Y)
    recorded = hposvc.load(found.sweep_).result().record.row.spec["parameters"]["level"]
    if isinstance(declared, dict):
        assert declared.items() <= recorded.items()
    else:
        assert recorded == declared


def test_objects_are_choices_and_have_a_text_in_the_record():
    scalers = [StandardScaler(), MinMaxScaler(), None]
    pipeline = Pipeline([("scale", StandardScaler()), ("ridge", Ridge())])
    given = {"scale": scalers, "ridge__alpha": [0.1, 1.0]}
    start = [{"scale": scalers[1], "ridge__alpha": 1.0}]
    found = search(pipeline, given, search="grid", n_trials=6, initial=start).fit(X, Y)
    assert found.cv_results_["params"][0] == start[0]
    assert {type(params["scale"]) for params in found.cv_results_["params"]} == {
        *map(type, scalers)
    }
    recorded = {params for params in hposvc.load(found.sweep_).trials()["scale"].dropna()}
    assert recorded == {"StandardScaler()", "MinMaxScaler()"}


def test_several_scores_search_for_the_one_that_refit_names_or_for_a_front():
    scoring = ["accuracy", "neg_log_loss"]
    tree = DecisionTreeClassifier(random_state=0)
    found = search(tree, GRID, scoring=scoring, refit="neg_log_loss").fit(X, Y)
    best = hposvc.load(found.sweep_).best()
    assert best.value == found.best_score_ == found.cv_results_["mean_test_neg_log_loss"].max()
    assert best.metrics["mean_test_accuracy"] in found.cv_results_["mean_test_accuracy"]
    front = search(tree, GRID, scoring=scoring, refit=False).fit(X, Y)
    assert not hasattr(front, "best_index_")
    pareto = hposvc.load(front.sweep_).result().pareto
    assert {"mean_test_accuracy", "mean_test_neg_log_loss"} <= {*pareto}


def test_a_trial_that_cannot_be_fitted_has_the_error_score_and_the_others_go_on():
    with pytest.warns(UserWarning, match="non-finite"):
        found = search(Picky(), {"level": [1, 2, 3]}, search="grid").fit(X, Y)
    failed = [params["level"] == 3 for params in found.cv_results_["params"]]
    assert sorted(failed) == [False, False, True]
    assert list(found.cv_results_["trial"]) == ["t0001", "t0002", "t0003"]
    assert list(np.isnan(found.cv_results_["mean_test_score"])) == failed
    states = hposvc.load(found.sweep_).trials()["state"]
    assert list(states == "FAILED") == failed
    scored = search(Picky(), {"level": [1, 2, 3]}, search="grid", error_score=0.0).fit(X, Y)
    assert min(scored.cv_results_["mean_test_score"]) == 0.0


def test_if_none_can_be_fitted_the_error_is_that_of_scikit_learn():
    with pytest.raises(ValueError, match="level 4 is too much"):
        search(Picky(), {"level": [3, 4]}, search="grid").fit(X, Y)
    assert hposvc.load("last").result().state in ("COMPLETED", "FAILED")


def test_jobs_beyond_the_folds_try_configurations_together():
    space = {"alpha": {"min": 0.1, "max": 9.0}}
    together = search(Ridge(), space, n_jobs=4, n_trials=5)
    with parallel_config(backend="threading"):  # processes would take seconds to start
        together.fit(X, Y)
    kinds = [event.kind for event in hposvc.load(together.sweep_)._open().history()[1]]
    shown = [kind for kind in kinds if kind in ("ordered", "ended")]
    assert shown[:4] == ["ordered", "ordered", "ended", "ended"]
    alone = search(Ridge(), space, n_trials=5).fit(X, Y)
    assert alone.cv_results_["params"] == together.cv_results_["params"]


def test_it_is_cloned_pickled_and_validated_across_as_an_estimator():
    estimator = search(Ridge(), {"alpha": [0.1, 1.0]}, constraints=["alpha > 0"])
    copy = clone(estimator)
    assert str(copy.get_params()) == str(estimator.get_params())
    fitted = pickle.loads(pickle.dumps(copy.fit(X, Y)))
    assert list(fitted.predict(X)) == list(copy.predict(X))
    assert len(cross_val_score(estimator, X, Y, cv=2)) == 2


def test_what_is_wrong_is_said_in_the_words_of_a_spec():
    with pytest.raises(SpecError, match=r"parameters.alpha"):
        search(Ridge(), {"alpha": {"min": 2.0, "max": 1.0}}).fit(X, Y)
    with pytest.raises(TypeError, match="write one mapping of names"):
        search(Ridge(), [{"alpha": [1.0]}, {"solver": ["svd"]}]).fit(X, Y)
    with pytest.raises(SpecError, match="bayes"):
        search(Ridge(), {"alpha": [1.0]}, search="bayes").fit(X, Y)


@pytest.mark.parametrize("other", [GridSearchCV, RandomizedSearchCV])
def test_an_argument_of_scikit_learns_searches_is_one_here_or_says_its_name_here(other):
    here = inspect.signature(SweepSearchCV).parameters
    foreign = inspect.signature(other).parameters.keys() - here.keys()
    assert foreign
    for name in foreign:
        with pytest.raises(TypeError, match=rf"has no {name}; here it is ") as error:
            SweepSearchCV(Ridge(), **{name: {}})
        assert re.search(r"(\w+)=\.\.\.$", f"{error.value}")[1] in here


def test_resuming_it_says_that_its_data_are_gone():
    found = search(Ridge(), {"alpha": {"min": 0.1, "max": 9.0}}, n_trials=1).fit(X, Y)
    result = hposvc.load(found.sweep_).extend(1, progress=False)
    (why,) = result.record.failures().values()
    assert "whose data are gone with its process; call fit again" in why


SLOW = """
import sys, time
import numpy as np
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from hposvc.sklearn import SweepSearchCV

class Slow(DummyClassifier):
    def fit(self, X, y):
        print("fits", flush=True)
        time.sleep(0.3)
        return super().fit(X, y)

SweepSearchCV(Slow(), {"random_state": [*range(99)]}, n_trials=99, name="slow").fit(
    *load_iris(return_X_y=True)
)
"""


@pytest.mark.full
def test_ctrl_c_ends_the_fit_and_keeps_what_was_found():
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=PIPE, stderr=PIPE, text=True)
    for _ in range(7):  # the second trial's folds
        assert process.stdout.readline() == "fits\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    sweeps = api.Sweeps.open(None)
    (row,) = sweeps.journal.sweeps()
    record = api.load(sweeps, row.id)
    assert record.phase == "INTERRUPTED"
    assert "COMPLETED" in {trial.state for trial in record.trials()}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_page_runs(block):
    exec(compile(block, "how-to/scikit-learn.md", "exec"), {})
