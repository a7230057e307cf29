"""First steps. A function of a configuration that reports as it goes.

python examples/function.py          (half a minute on two cores)
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import hposvc


def train(config):
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    model = SGDClassifier(alpha=config["alpha"], random_state=0)
    for _ in range(9):
        model.partial_fit(x, y, classes=range(10))
        hposvc.report({"accuracy": model.score(x_test, y_test)})


sweep = hposvc.Sweep(
    train,
    metric={"name": "accuracy", "goal": "maximize"},
    parameters={"alpha": {"min": 1e-5, "max": 1e-1, "log": True}},
    fidelity={"max": 9},
    scheduler={"type": "asha"},
    trials={"max": 8},
)
print(sweep.run().best)
