"""Real trainings to tune: scikit-learn's models on data that comes inside of Python packages.

A loss is the mean over three folds: the log loss of a classifier that gives probabilities, the
error rate of one that does not, the root mean squared error of a regression in units of the
target's standard deviation. At most 10 of it counts; what cannot be trained has 10.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC, SVR

from problems import models
from problems.problem import Array, Params
from searchers import Space

WORST = 10.0


@dataclass(frozen=True)
class Training:
    """A model with hyperparameters, and the data that it is trained on."""

    space: Space
    data: str
    rows: int
    build: Callable[[Params], Any]  # an estimator of scikit-learn

    def loss(self, params: Params) -> float:
        x, y = _data(self.data, self.rows)
        is_regression = y.dtype.kind == "f"
        folds = (KFold if is_regression else StratifiedKFold)(3).split(x, y)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # of fits that stop early, which is their business
                losses = [_fold_loss(self.build(params), x, y, *fold) for fold in folds]
        except ValueError:  # of scikit-learn, for numbers that are not finite
            return WORST
        return float(min(np.nan_to_num(np.mean(losses), nan=WORST), WORST))


def _fold_loss(model: Any, x: Array, y: Array, fitted: Array, held: Array) -> float:
    model.fit(x[fitted], y[fitted])
    if y.dtype.kind == "f":
        return float(np.sqrt(np.mean((np.clip(model.predict(x[held]), -1e3, 1e3) - y[held]) ** 2)))
    if hasattr(model, "predict_proba"):
        chances = np.clip(model.predict_proba(x[held]), 1e-6, 1.0)
        return float(log_loss(y[held], chances / chances.sum(axis=1, keepdims=True)))
    return 1.0 - float(model.score(x[held], y[held]))


@cache
def _data(name: str, rows: int) -> tuple[Array, Array]:
    """The first rows in a random order; targets of regressions are standardized."""
    if name == "fair":
        from statsmodels.datasets import fair

        loaded = fair.load_pandas()
        x, y = loaded.exog.to_numpy(float), (loaded.endog.to_numpy(float) > 0).astype(int)
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:rows]
    x, y = x[order], y[order]
    return x, (y - y.mean()) / y.std() if y.dtype.kind == "f" else y


TRAININGS: Mapping[str, Training] = {
    "svm_digits": Training(models.SVM, "digits", 500, partial(models.svm, SVC)),
    "svm_diabetes": Training(models.SVM, "diabetes", 442, partial(models.svm, SVR)),
    "perceptron_digits": Training(
        models.PERCEPTRON, "digits", 450, partial(models.perceptron, MLPClassifier)
    ),
    "perceptron_diabetes": Training(
        models.PERCEPTRON, "diabetes", 442, partial(models.perceptron, MLPRegressor)
    ),
    "boosting_diabetes": Training(
        models.BOOSTING,
        "diabetes",
        442,
        partial(models.boosting, HistGradientBoostingRegressor),
    ),
    "boosting_fair": Training(
        models.BOOSTING, "fair", 800, partial(models.boosting, HistGradientBoostingClassifier)
    ),
    "forest_wine": Training(models.FOREST, "wine", 178, models.forest),
    "forest_fair": Training(models.FOREST, "fair", 800, models.forest),
    "elastic_diabetes": Training(models.ELASTIC, "diabetes", 442, models.elastic),
    "neighbours_digits": Training(models.NEIGHBOURS, "digits", 600, models.neighbours),
    "linear_breast_cancer": Training(models.LINEAR, "breast_cancer", 400, models.linear),
}
