"""A small network on scikit-learn's digits: how well it reads, how large it is. See pareto.yaml."""

import warnings

from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import hposvc

EPOCHS = 9


def train(config):
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, digits, random_state=0)
    model = MLPClassifier(
        hidden_layer_sizes=[config["width"]] * config["layers"],
        learning_rate_init=config["lr"],
        random_state=0,
    )
    warnings.simplefilter("ignore", ConvergenceWarning)
    for _ in range(EPOCHS):
        model.partial_fit(x, y, classes=range(10))
        weights = sum(each.size for each in [*model.coefs_, *model.intercepts_])
        hposvc.report({"accuracy": model.score(x_test, y_test), "parameters": weights})
