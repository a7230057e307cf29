"""Ray and Optuna. Your own Ray Tune experiment, with our Gaussian process.

python examples/tune_search.py          (half a minute on two cores)
"""

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from hposvc import TuneSearch

EPOCHS = 9


def train(config):
    images, classes = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(images / 16, classes, random_state=0)
    model = SGDClassifier(
        learning_rate=config["schedule"]["kind"],
        eta0=config["schedule"]["eta0"],
        alpha=config["alpha"],
        random_state=0,
    )
    for _ in range(EPOCHS):
        model.partial_fit(x_train, y_train, classes=range(10))
        tune.report({"accuracy": model.score(x_test, y_test)})


tuner = tune.Tuner(
    train,
    param_space={
        "alpha": tune.loguniform(1e-6, 1e-1),
        "schedule": {
            "kind": tune.choice(["constant", "adaptive"]),
            "eta0": tune.loguniform(1e-3, 1.0),
        },
    },
    tune_config=tune.TuneConfig(
        metric="accuracy",
        mode="max",
        num_samples=12,
        max_concurrent_trials=2,
        reuse_actors=True,  # a process of its own for each trial would take seconds to start
        search_alg=TuneSearch("gp"),
        scheduler=ASHAScheduler(max_t=EPOCHS, reduction_factor=3),
    ),
)
best = tuner.fit().get_best_result()
print(best.config, best.metrics["accuracy"])
