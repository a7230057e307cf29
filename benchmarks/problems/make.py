"""Evaluates real trainings and keeps a small model of each: `python -m problems.make [NAME ...]`.

Run it in this folder's parent, with the project's package and statsmodels installed. It takes
minutes for each training, of one core.
"""

import sys
import time
import warnings

import numpy as np
from scipy.stats import spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.neural_network import MLPRegressor

from problems.problem import Array, Params, features
from problems.surrogate import DATA, Scale
from problems.trainings import TRAININGS, Training
from searchers import Space

RANDOM, REFINED = 550, 350
SECONDS = 150.0  # of one core, for a training; fewer configurations then
FITTED = 0.8  # share of the configurations that a model is fitted to before it is checked
NETWORKS = 4
WIDTH = 48


def evaluate(training: Training) -> tuple[list[Params], Array]:
    """Random configurations, then moves of the best, where the model has to be good."""
    rng = np.random.default_rng(0)
    end = time.process_time() + SECONDS
    told: list[tuple[float, Params]] = []
    for number in range(RANDOM + REFINED):
        is_late = time.process_time() > end - SECONDS * REFINED / (RANDOM + REFINED)
        if number < RANDOM and not is_late:
            params = training.space.sample(rng)
        else:
            best = sorted(told, key=lambda one: one[0])[:20]
            params = training.space.perturb(best[rng.integers(len(best))][1], rng)
        told.append((training.loss(params), params))
        if time.process_time() > end:
            break
    return [params for _, params in told], np.array([loss for loss, _ in told])


def networks(x: Array, z: Array) -> list[MLPRegressor]:
    """Networks that differ by their first weights, each after the same number of epochs."""
    return [
        MLPRegressor(
            hidden_layer_sizes=(WIDTH, WIDTH), alpha=1e-2, max_iter=500, tol=0.0, random_state=seed
        ).fit(x, z)
        for seed in range(NETWORKS)
    ]


def fit(space: Space, configurations: list[Params], losses: Array) -> dict[str, Array]:
    """The weights of the networks, and how well others predict what they were not fitted to."""
    x = features(space, configurations)
    scale = Scale.of(losses)
    z = scale.forward(losses)
    order = np.random.default_rng(0).permutation(len(x))
    seen, held = np.split(order, [int(FITTED * len(x))])
    predicted = np.mean([one.predict(x[held]) for one in networks(x[seen], z[seen])], axis=0)
    arrays: dict[str, Array] = {
        "scale": np.array([scale.floor, scale.mean, scale.deviation]),
        "rows": np.array(len(x)),
        "holdout_r2": np.array(r2_score(z[held], predicted)),
        "holdout_rank_correlation": np.array(spearmanr(z[held], predicted).statistic),
    }
    final = networks(x, z)
    for layer in range(3):
        arrays[f"weight{layer}"] = np.array([one.coefs_[layer] for one in final], np.float32)
        arrays[f"bias{layer}"] = np.array([one.intercepts_[layer] for one in final], np.float32)
    return arrays


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # their epochs are given
    for name in names or TRAININGS:
        began = time.process_time()
        training = TRAININGS[name]
        arrays = fit(training.space, *evaluate(training))
        made = f"python -m problems.make {name}"
        np.savez_compressed(DATA / f"{name}.npz", made=np.array(made), **arrays)
        print(
            f"{name}: {arrays['rows']} configurations, {time.process_time() - began:.0f} s, "
            f"hold-out R2 {arrays['holdout_r2']:.3f}, "
            f"rank correlation {arrays['holdout_rank_correlation']:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
