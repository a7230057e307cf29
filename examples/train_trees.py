"""Boosted trees on scikit-learn's breast cancer data (569 patients): a function, without torch.

Each step adds trees, so a step is cheap, and a longer trial boosts longer.
Data: Wolberg, Street & Mangasarian, Breast Cancer Wisconsin (Diagnostic) (UCI, 1995).
"""

import pickle
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from trainables.worker import Params, Worker

Array = NDArray[np.float64]

FILE = "trees.pickle"
TREES = 10  # per step
VALIDATION = 0.3  # share of the patients


def train(params: Params, worker: Worker) -> None:
    """Boost trees, reporting val/loss (cross-entropy) and val/accuracy (a share).

    Args:
        params: learning_rate, max_leaf_nodes, min_samples_leaf, l2_regularization, max_features;
            absent ones have scikit-learn's defaults.
    """
    x_train, x_validation, y_train, y_validation = patients()
    folder = worker.restore()
    trees = plant(worker.seed) if folder is None else pickle.loads((folder / FILE).read_bytes())
    trees.set_params(**params)
    for step in worker.steps():
        trees.set_params(max_iter=trees.max_iter + TREES)
        trees.fit(x_train, y_train)
        metrics = {
            "val/loss": float(log_loss(y_validation, trees.predict_proba(x_validation))),
            "val/accuracy": float(trees.score(x_validation, y_validation)),
        }
        worker.report(step, metrics, save(trees, worker) if worker.takes(step) else None)


def plant(seed: int) -> HistGradientBoostingClassifier:
    """Return a model without trees; with `warm_start` each fit adds some."""
    return HistGradientBoostingClassifier(
        max_iter=0, early_stopping=False, warm_start=True, random_state=seed % 2**32
    )


def save(trees: HistGradientBoostingClassifier, worker: Worker) -> Path:
    folder = worker.scratch()
    (folder / FILE).write_bytes(pickle.dumps(trees))
    return folder


@cache
def patients() -> tuple[Array, Array, Array, Array]:
    """Return features (N, 30) for training and validation, then labels (N,), in a fixed split."""
    features, labels = load_breast_cancer(return_X_y=True)
    x_train, x_validation, y_train, y_validation = train_test_split(
        features, labels, test_size=VALIDATION, stratify=labels, random_state=0
    )
    return x_train, x_validation, y_train, y_validation
