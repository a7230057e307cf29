"""Learning curves of small networks: recorded from real trainings, and a model for any other.

`train_curves.py` recorded them; `python benchmarks/learning_curves.py NAME` fits the model into the
same file and prints how well it predicts trainings that it has not seen. A smooth curve is the mean
of five networks, from the configuration to the principal components of the logarithms of curves. A
rough one has the residual of the nearest recorded configuration on it. Losses that are not finite
count as the largest.

Axes: N recorded configurations, E epochs, P parameters, C components of both metrics together,
F folds: each network has seen all of them but one.
"""

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchers import Space

Array = NDArray[np.float64]
Params = Mapping[str, Any]

EPOCHS = 27
NAMES = ("digits", "fashion", "movies", "words")
METRICS = ("loss", "error")
LARGEST = 100.0  # loss that is told from others: chance is 2.3 at most
LEAST = 5e-4  # share of errors, which has a logarithm
COMPONENTS = 8  # of each metric's curves
FOLDS = 5
SPACE = {
    "lr": {"min": 1e-4, "max": 1.0, "log": True},
    "optimizer": {"values": ["sgd", "adamw"]},
    "momentum": {"min": 0.0, "max": 0.99, "when": {"optimizer": "sgd"}},
    "weight_decay": {"min": 1e-6, "max": 1.0, "log": True},
    "width": {"min": 8, "max": 128, "type": "int", "log": True},
    "depth": {"min": 1, "max": 3, "type": "int"},
    "dropout": {"min": 0.0, "max": 0.6},
    "batch": {"values": [32, 64, 128, 256], "ordered": True},
    "activation": {"values": ["relu", "tanh"]},
    "schedule": {"values": ["constant", "cosine"]},
    "smoothing": {"min": 0.0, "max": 0.3},
}


@cache
def space() -> Space:
    """What was searched, in all families."""
    return Space.from_dict(SPACE)


def file_of(name: str) -> Path:
    return Path(__file__).parent / "data" / f"curves-{name}.npz"


def logarithms(recorded: Mapping[str, Array]) -> Array:
    """Curves of both metrics side by side, (N, 2E), as the model predicts them."""
    loss_NE = np.nan_to_num(recorded["loss"].astype(np.float64), nan=LARGEST)
    error_NE = recorded["error"].astype(np.float64)
    curve_NE: Array = np.log(np.hstack([loss_NE.clip(1e-3, LARGEST), error_NE.clip(LEAST, 1.0)]))
    return curve_NE


@dataclass(frozen=True)
class Curves:
    """A family of learning curves over the whole space."""

    unit_NP: Array
    residual_NE: Array  # of both metrics side by side, as `logarithms`
    mean_E: Array
    component_CE: Array
    networks: list[list[tuple[Array, Array]]]  # (weight, bias) of each layer, by fold

    @classmethod
    def load(cls, name: str) -> "Curves":
        """The family in its file.

        Raises:
            FileNotFoundError: it was not trained; the message says how.
        """
        if not file_of(name).exists():
            raise FileNotFoundError(
                f"{file_of(name)} is not there: run `python benchmarks/train_curves.py {name}` "
                f"and `python benchmarks/learning_curves.py {name}`"
            )
        with np.load(file_of(name)) as arrays:
            stored = {key: arrays[key].astype(np.float64) for key in arrays.files}
        networks = [
            [(stored[f"weight{fold}{layer}"], stored[f"bias{fold}{layer}"]) for layer in range(3)]
            for fold in range(FOLDS)
        ]
        family = cls(stored["unit"], np.empty(0), stored["mean"], stored["components"], networks)
        residual_NE = logarithms(stored) - family.predicted(stored["unit"])
        return cls(family.unit_NP, residual_NE, family.mean_E, family.component_CE, networks)

    def predicted(self, unit_NP: Array) -> Array:
        """Logarithms of smooth curves (N, 2E)."""
        score_NC = np.mean([_forward(layers, unit_NP) for layers in self.networks], axis=0)
        curve_NE: Array = self.mean_E + score_NC @ self.component_CE
        return curve_NE

    def rough(self, unit_NP: Array) -> Array:
        """The same with the residual of the nearest recorded configuration."""
        distance_NN = np.linalg.norm(unit_NP[:, None] - self.unit_NP, axis=2)
        curve_NE: Array = self.predicted(unit_NP) + self.residual_NE[distance_NN.argmin(axis=1)]
        return curve_NE


def _forward(layers: list[tuple[Array, Array]], unit_NP: Array) -> Array:
    hidden = 2.0 * unit_NP - 1.0
    for weight, bias in layers[:-1]:
        hidden = np.tanh(hidden @ weight + bias)
    return hidden @ layers[-1][0] + layers[-1][1]


@cache
def family(name: str) -> Curves:
    return Curves.load(name)


@cache
def _rough(name: str, unit_P: tuple[float, ...]) -> Array:
    rough_E: Array = np.exp(family(name).rough(np.array([unit_P]))[0])
    return rough_E


def _unit(params: Params) -> tuple[float, ...]:
    own = {name: value for name, value in params.items() if name in SPACE}
    return tuple(space().encode(own).tolist())


def curve(params: Params, step: int) -> tuple[dict[str, float], float]:
    """What a simulated sweep calls: the metrics of a step, and its seconds.

    `params` holds, beside the configuration, the name of the family.
    """
    unit_P = _unit(params)
    rough_E = _rough(params["family"], unit_P)
    seconds = 0.8 + 0.4 * np.random.default_rng(int(1e9 * sum(unit_P))).random()
    metrics = zip(METRICS, rough_E[[step - 1, EPOCHS + step - 1]].tolist(), strict=True)
    return dict(metrics), seconds


def true_curve(params: Params, metric: str) -> Array:
    """The metric at every epoch, without roughness."""
    name, first = params["family"], EPOCHS * METRICS.index(metric)
    smooth_E: Array = np.exp(family(name).predicted(np.array([_unit(params)]))[0])
    return smooth_E[first : first + EPOCHS]


@cache
def optimum(name: str, metric: str) -> float:
    """The lowest last value without roughness that a search of 30,000 curves finds."""
    rng, last = np.random.default_rng(0), EPOCHS * METRICS.index(metric) + EPOCHS - 1
    unit_NP = rng.random((10_000, len(space().searched)))
    best = np.inf
    for step in (0.2, 0.1, 0.05, 0.02, 0.01):
        unit_NP = np.array([space().encode(space().decode(unit_P)) for unit_P in unit_NP])
        value_N = family(name).predicted(unit_NP)[:, last]
        best = min(best, float(value_N.min()))
        parent_NP = np.repeat(unit_NP[np.argsort(value_N)[:40]], 100, axis=0)
        unit_NP = (parent_NP + step * rng.standard_normal(parent_NP.shape)).clip(0.0, 1.0)
    return float(np.exp(best))


def fit(name: str) -> None:
    """Fit the networks, and write them into the family's file with their quality."""
    with np.load(file_of(name)) as arrays:
        stored = {key: arrays[key] for key in ("unit", "loss", "error")}
    curve_NE, unit_NP = logarithms(stored), stored["unit"].astype(np.float64)
    mean_E = curve_NE.mean(axis=0)
    component_CE = _components(curve_NE - mean_E)
    held_out_NE = np.empty_like(curve_NE)
    fold_N = np.random.default_rng(0).integers(FOLDS, size=len(unit_NP))
    for fold in range(FOLDS):
        is_seen_N = fold_N != fold
        score_NC = (curve_NE[is_seen_N] - mean_E) @ component_CE.T
        layers = _network(unit_NP[is_seen_N], score_NC, fold)
        for layer, (weight, bias) in enumerate(layers):
            stored[f"weight{fold}{layer}"] = weight.astype(np.float32)
            stored[f"bias{fold}{layer}"] = bias.astype(np.float32)
        held_out_NE[~is_seen_N] = mean_E + _forward(layers, unit_NP[~is_seen_N]) @ component_CE
    stored |= {"mean": mean_E.astype(np.float32), "components": component_CE.astype(np.float32)}
    stored["quality"] = quality(curve_NE, held_out_NE).astype(np.float32)
    np.savez_compressed(file_of(name), **stored)


def _components(centred_NE: Array) -> Array:
    """Principal components (C, 2E) of the curves of each metric by itself."""
    component_CE = np.zeros((2 * COMPONENTS, 2 * EPOCHS))
    for metric in range(2):
        own = slice(metric * EPOCHS, (metric + 1) * EPOCHS)
        axis_EE = np.linalg.svd(centred_NE[:, own], full_matrices=False)[2]
        component_CE[metric * COMPONENTS : (metric + 1) * COMPONENTS, own] = axis_EE[:COMPONENTS]
    return component_CE


def _network(unit_NP: Array, score_NC: Array, seed: int) -> list[tuple[Array, Array]]:
    """Weight and bias of each layer of a network from configurations to scores."""
    from sklearn.neural_network import MLPRegressor

    scale = score_NC.std()
    network = MLPRegressor(
        hidden_layer_sizes=(48, 48),
        activation="tanh",
        solver="lbfgs",
        alpha=0.1,
        max_iter=600,
        max_fun=2000,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped early on purpose
        network.fit(2.0 * unit_NP - 1.0, score_NC / scale)
    layers = list(zip(network.coefs_, network.intercepts_, strict=True))
    return [*layers[:-1], (layers[-1][0] * scale, layers[-1][1] * scale)]


def quality(curve_NE: Array, held_out_NE: Array) -> Array:
    """How well held-out curves are predicted: (metric, figure, epoch).

    The figures are R2 of the logarithm, Spearman's rank correlation, and the same among the better
    half of the configurations.
    """
    from scipy.stats import spearmanr

    figures = np.empty((3, 2 * EPOCHS))
    for epoch in range(2 * EPOCHS):
        real_N, said_N = curve_NE[:, epoch], held_out_NE[:, epoch]
        better_N = real_N <= np.median(real_N)
        figures[0, epoch] = 1.0 - np.mean((real_N - said_N) ** 2) / real_N.var()
        figures[1, epoch] = spearmanr(real_N, said_N).statistic
        figures[2, epoch] = spearmanr(real_N[better_N], said_N[better_N]).statistic
    return figures.reshape(3, 2, EPOCHS).swapaxes(0, 1)


def main() -> None:
    """Fit, and print the quality that is kept in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    name = parser.parse_args().name
    fit(name)
    with np.load(file_of(name)) as arrays:
        shown = arrays["quality"][:, :, [0, 2, 8, 17, 26]]
        print(f"{name}: {len(arrays['unit'])} configurations; epochs 1, 3, 9, 18, 27")
    for metric, figures in zip(METRICS, shown, strict=True):
        for figure, values in zip(("R2", "Spearman", "of the better half"), figures, strict=True):
            print(f"{metric:6}{figure:20}", *(f"{value:6.3f}" for value in values))


if __name__ == "__main__":
    main()
