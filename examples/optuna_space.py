"""Ray and Optuna. A space that a function suggests, as for Optuna.

python examples/optuna_space.py          (half a minute on two cores)
"""

from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hposvc import Sweep


def space(trial):
    if trial.suggest_categorical("model", ["forest", "logistic"]) == "forest":
        trial.suggest_int("max_depth", 2, 16, log=True)
        trial.suggest_float("max_features", 0.1, 1.0)
    else:
        trial.suggest_float("C", 1e-3, 1e3, log=True)


def train(params, worker):
    options = {name: value for name, value in params.items() if name != "model"}
    if params["model"] == "forest":
        model = RandomForestClassifier(n_estimators=20, random_state=0, **options)
    else:
        model = make_pipeline(StandardScaler(), LogisticRegression(**options))
    shares = cross_val_score(model, *load_wine(return_X_y=True))
    worker.report(1, {"accuracy": shares.mean()})


metric = {"name": "accuracy", "goal": "maximize"}
sweep = Sweep(train, metric=metric, parameters={"space": space}, trials={"max": 12})
print(sweep.run().best)
