"""LightGBM on scikit-learn's diabetes data: a callback reports each round to the sweep.

Data: Efron, Hastie, Johnstone & Tibshirani, Least Angle Regression (2004), 442 patients.
"""

from typing import Any

import lightgbm
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import hposvc

ROUNDS = 81


def train(params: dict[str, Any]) -> None:
    """Report val/rmse, by which the sweep chooses, and test/rmse of patients that it never sees."""
    x, y = load_diabetes(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, random_state=0)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.33, random_state=0)
    training = lightgbm.Dataset(x, y)
    lightgbm.train(
        {"objective": "regression", "metric": "rmse", "num_threads": 1, "verbose": -1, **params},
        training,
        num_boost_round=ROUNDS,
        valid_sets=[training.create_valid(x_val, y_val), training.create_valid(x_test, y_test)],
        valid_names=["val", "test"],
        init_model=hposvc.lightgbm.checkpoint(),
        callbacks=[hposvc.lightgbm.Report()],  # all that the sweep needs
    )
