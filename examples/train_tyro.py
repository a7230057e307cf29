"""A linear classifier of scikit-learn's digits, with tyro. See script_tyro.yaml."""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import tyro
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import hposvc


@dataclass(frozen=True)
class Sgd:
    """Options of the optimizer."""

    alpha: float = 1e-4
    use_bias: bool = True


@dataclass(frozen=True)
class Options:
    """Options of the script."""

    sgd: Sgd = field(default_factory=Sgd)
    epochs: int = 9


def train(options: Options) -> None:
    """Train, and report the accuracy of each epoch with a checkpoint."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    sgd, epoch = options.sgd, 0
    model = SGDClassifier(alpha=sgd.alpha, fit_intercept=sgd.use_bias, random_state=0)
    if folder := hposvc.get_checkpoint():
        model, epoch = pickle.loads((folder / "model.pkl").read_bytes())
    while epoch < options.epochs:
        epoch += 1
        model.partial_fit(x, y, classes=range(10))
        if save := os.environ.get("HPOSVC_CHECKPOINT_DIR"):  # not set without hposvc
            (Path(save) / "model.pkl").write_bytes(pickle.dumps((model, epoch)))
        hposvc.report({"accuracy": model.score(x_test, y_test)}, step=epoch)


if __name__ == "__main__":
    train(tyro.cli(Options))
