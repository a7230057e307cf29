"""Ray and Optuna. A trainable of Ray Tune with its search space, as they are.

python examples/ray_tune.py          (half a minute on two cores)
"""

from pathlib import Path

import joblib
from ray import tune
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from hposvc import Sweep


class Linear(tune.Trainable):
    def setup(self, config):
        images, digits = load_digits(return_X_y=True)
        self.x, self.x_test, self.y, self.y_test = train_test_split(images / 16, digits)
        self.model = SGDClassifier(
            alpha=config["alpha"], loss=config["loss"], learning_rate="constant", eta0=config["lr"]
        )

    def step(self):
        self.model.partial_fit(self.x, self.y, classes=range(10))
        return {"accuracy": self.model.score(self.x_test, self.y_test)}

    def save_checkpoint(self, folder):
        joblib.dump(self.model, Path(folder, "model"))

    def load_checkpoint(self, folder):
        self.model = joblib.load(Path(folder, "model"))


sweep = Sweep(
    Linear,
    metric={"name": "accuracy", "goal": "maximize"},
    parameters={
        "lr": tune.loguniform(1e-4, 1.0),
        "alpha": tune.loguniform(1e-6, 1e-2),
        "loss": tune.choice(["hinge", "log_loss"]),
    },
    fidelity={"max": 9},
    scheduler={"type": "asha", "mode": "promote"},
    trials={"max": 9},
)
print(sweep.run().best)
