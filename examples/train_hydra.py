"""A linear classifier of scikit-learn's digits, as a Hydra application. See script_hydra.yaml."""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import hposvc


@dataclass
class Sgd:
    """Options of the optimizer."""

    alpha: float = 1e-4
    penalty: str = "l2"


@dataclass
class Config:
    """The application's config, in place of a file."""

    sgd: Sgd = field(default_factory=Sgd)
    epochs: int = 9


ConfigStore.instance().store("config", Config)


@hydra.main(version_base="1.3", config_path=None, config_name="config")
def train(config: Config) -> float:
    """Train, report the accuracy of each epoch with a checkpoint, and return the last one."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    sgd, epoch, accuracy = config.sgd, 0, 0.0
    model = SGDClassifier(alpha=sgd.alpha, penalty=sgd.penalty, random_state=0)
    if folder := hposvc.get_checkpoint():
        model, epoch = pickle.loads((folder / "model.pkl").read_bytes())
    while epoch < config.epochs:
        epoch += 1
        model.partial_fit(x, y, classes=range(10))
        accuracy = float(model.score(x_test, y_test))
        if save := os.environ.get("HPOSVC_CHECKPOINT_DIR"):  # not set without hposvc
            (Path(save) / "model.pkl").write_bytes(pickle.dumps((model, epoch)))
        hposvc.report({"accuracy": accuracy}, step=epoch)
    return accuracy


if __name__ == "__main__":
    train()
