"""LightGBM on scikit-learn's digits, 64 columns: a callback reports each round to the sweep.

Data: Alpaydin & Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), 1,797 of them.
"""

from typing import Any

import lightgbm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hposvc

ROUNDS = 81


def train(params: dict[str, Any]) -> None:
    """Report val/multi_logloss, by which the sweep chooses, and that of digits it never sees."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=0)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.4, random_state=0)
    training = lightgbm.Dataset(x, y)
    lightgbm.train(
        {"objective": "multiclass", "num_class": 10, "num_threads": 1, "verbose": -1, **params},
        training,
        num_boost_round=ROUNDS,
        valid_sets=[training.create_valid(x_val, y_val), training.create_valid(x_test, y_test)],
        valid_names=["val", "test"],
        init_model=hposvc.lightgbm.checkpoint(),
        callbacks=[hposvc.lightgbm.Report()],  # all that the sweep needs
    )
