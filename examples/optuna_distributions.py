"""Ray and Optuna. A search space in Optuna's distributions.

python examples/optuna_distributions.py          (half a minute on two cores)
"""

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score

from hposvc import Sweep


def score(config):
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0, **config)
    return cross_val_score(model, *load_diabetes(return_X_y=True)).mean()


sweep = Sweep(
    score,
    metric={"name": "r2", "goal": "maximize"},
    parameters={
        "learning_rate": FloatDistribution(1e-2, 0.5, log=True),
        "max_leaf_nodes": IntDistribution(2, 64, log=True),
        "loss": CategoricalDistribution(["squared_error", "absolute_error"]),
    },
    trials={"max": 10},
)
print(sweep.run().best)
