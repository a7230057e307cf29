"""A linear classifier of scikit-learn's digits, with click. See script_click.yaml."""

import os
import pickle
from pathlib import Path

import click
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import hposvc


@click.command()
@click.option("--alpha", default=1e-4)
@click.option("--use-bias/--no-use-bias", default=True)
@click.option("--epochs", default=9)
def train(alpha: float, use_bias: bool, epochs: int) -> None:
    """Train, and report the accuracy of each epoch with a checkpoint."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    model, epoch = SGDClassifier(alpha=alpha, fit_intercept=use_bias, random_state=0), 0
    if folder := hposvc.get_checkpoint():
        model, epoch = pickle.loads((folder / "model.pkl").read_bytes())
    while epoch < epochs:
        epoch += 1
        model.partial_fit(x, y, classes=range(10))
        if save := os.environ.get("HPOSVC_CHECKPOINT_DIR"):  # not set without hposvc
            (Path(save) / "model.pkl").write_bytes(pickle.dumps((model, epoch)))
        hposvc.report({"accuracy": model.score(x_test, y_test)}, step=epoch)


if __name__ == "__main__":
    train()
