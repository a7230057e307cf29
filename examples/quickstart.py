"""First steps. A support vector machine on scikit-learn's breast cancer data.

python examples/quickstart.py          (half a minute on two cores)
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from hposvc import Sweep


def train(params, worker):
    model = SVC(C=params["C"], gamma=params["gamma"] / 1e4)
    shares = cross_val_score(model, *load_breast_cancer(return_X_y=True))
    worker.report(1, {"accuracy": shares.mean()})


metric = {"name": "accuracy", "goal": "maximize"}
scale = {"min": 1e-2, "max": 1e2, "log": True}
sweep = Sweep(train, metric=metric, parameters={"C": scale, "gamma": scale}, trials={"max": 20})
print(sweep.run().best)
