"""Small perceptrons that classify small data, trained epoch by epoch: what a race can afford.

They are written in numpy. An update of so small a network takes torch, which calls some fifty
operations for it, nearly five times as long; tests/benchmarks/test_small_networks.py holds both
against each other. `python benchmarks/small_networks.py NAME` trains a few, and prints the times.

Axes: B samples of a batch, N of a data set, I inputs of a layer, O outputs of it, C classes, W all
weights of a network.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from curve_data import LOADERS, Array, Samples
from numpy.random import Generator
from scipy.special import log_softmax

from searchers import Space

Params = Mapping[str, Any]

EPOCHS = 27
NAMES = tuple(LOADERS)
METRICS = ("loss", "error")
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
FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8  # AdamW's usual ones


@cache
def samples_of(name: str) -> Samples:
    return LOADERS[name]()


@dataclass(frozen=True)
class Network:
    """A perceptron whose weights, and their gradient, are one vector; layers are views of it."""

    weight_W: Array
    slope_W: Array
    layers: list[tuple[Array, Array, Array, Array]]  # weight IO and bias O, and their gradients
    relu: bool

    @classmethod
    def of(cls, sizes: list[int], relu: bool, rng: Generator) -> "Network":
        """Return a network whose weights are uniform within the root of 1 / I, as torch draws."""
        pairs = list(pairwise(sizes))
        weight_W, slope_W = np.empty((2, sum((i + 1) * o for i, o in pairs)), np.float32)
        layers, at = [], 0
        for i, o in pairs:
            end = at + (i + 1) * o
            weight_W[at:end] = rng.uniform(-(i**-0.5), i**-0.5, end - at)
            parts = (weight_W[at : end - o], weight_W[end - o : end])
            slopes = (slope_W[at : end - o], slope_W[end - o : end])
            layers.append((parts[0].reshape(i, o), parts[1], slopes[0].reshape(i, o), slopes[1]))
            at = end
        return cls(weight_W, slope_W, layers, relu)

    def logits(self, x_BI: Array) -> Array:
        """Return the logit of each class, without dropout."""
        for weight_IO, bias_O, _, _ in self.layers[:-1]:
            x_BI = self._activation(x_BI @ weight_IO + bias_O)
        weight_IO, bias_O, _, _ = self.layers[-1]
        logit_BC: Array = x_BI @ weight_IO + bias_O
        return logit_BC

    def differentiate(self, x_BI: Array, target_BC: Array, dropout: float, rng: Generator) -> None:
        """Set the gradient of the cross-entropy, averaged over the batch."""
        inputs, chains = [x_BI], list[Array]()
        for weight_IO, bias_O, _, _ in self.layers[:-1]:
            output_BO = self._activation(inputs[-1] @ weight_IO + bias_O)
            slope_BO = output_BO > 0.0 if self.relu else 1.0 - output_BO * output_BO
            kept_BO = rng.random(output_BO.shape, np.float32) >= dropout
            scale_BO = kept_BO * np.float32(1.0 / (1.0 - dropout))
            inputs.append(output_BO * scale_BO)
            chains.append(slope_BO * scale_BO)
        weight_IO, bias_O, _, _ = self.layers[-1]
        logit_BC = inputs[-1] @ weight_IO + bias_O
        odds_BC = np.exp(logit_BC - logit_BC.max(axis=1, keepdims=True))
        probability_BC = odds_BC / odds_BC.sum(axis=1, keepdims=True)
        error_BO = (probability_BC - target_BC) / np.float32(len(x_BI))
        for index, (weight_IO, _, slope_IO, slope_O) in reversed(list(enumerate(self.layers))):
            np.matmul(inputs[index].T, error_BO, out=slope_IO)
            error_BO.sum(axis=0, out=slope_O)
            if index:
                error_BO = (error_BO @ weight_IO.T) * chains[index - 1]

    def _activation(self, sum_BO: Array) -> Array:
        return np.maximum(sum_BO, 0.0) if self.relu else np.tanh(sum_BO)


Update = Callable[[float], None]  # given the learning rate


def sgd(network: Network, decay: float, momentum: float) -> Update:
    velocity_W = np.zeros_like(network.weight_W)

    def update(rate: float) -> None:
        nonlocal velocity_W
        velocity_W = momentum * velocity_W + network.slope_W + decay * network.weight_W
        network.weight_W[:] -= rate * velocity_W

    return update


def adamw(network: Network, decay: float) -> Update:
    mean_W, square_W = np.zeros((2, len(network.weight_W)), np.float32)
    steps = 0

    def update(rate: float) -> None:
        nonlocal mean_W, square_W, steps
        steps += 1
        slope_W = network.slope_W
        mean_W = FIRST_DECAY * mean_W + (1.0 - FIRST_DECAY) * slope_W
        square_W = SECOND_DECAY * square_W + (1.0 - SECOND_DECAY) * slope_W * slope_W
        root_W = np.sqrt(square_W) / math.sqrt(1.0 - SECOND_DECAY**steps) + TINY
        network.weight_W[:] *= 1.0 - rate * decay
        network.weight_W[:] -= (rate / (1.0 - FIRST_DECAY**steps)) * mean_W / root_W

    return update


def trained(params: Params, samples: Samples, seed: int) -> Iterator[dict[str, float]]:
    """Yield the metrics of each epoch, on samples that were not trained on."""
    rng = np.random.default_rng(seed)
    hidden = [int(params["width"])] * int(params["depth"])
    sizes = [samples.train_x.shape[1], *hidden, samples.classes]
    network = Network.of(sizes, params["activation"] == "relu", rng)
    if params["optimizer"] == "sgd":
        update = sgd(network, params["weight_decay"], params["momentum"])
    else:
        update = adamw(network, params["weight_decay"])
    smoothing, batch = params["smoothing"], int(params["batch"])
    target_CC = (1.0 - smoothing) * np.eye(samples.classes) + smoothing / samples.classes
    target_NC = target_CC.astype(np.float32)[samples.train_y]
    updates = len(samples.train_x) // batch
    for epoch in range(EPOCHS):
        order_N = rng.permutation(len(samples.train_x))
        with np.errstate(all="ignore"):  # some diverge
            for index, index_B in enumerate(np.split(order_N[: updates * batch], updates)):
                rate, done = params["lr"], (epoch * updates + index) / (EPOCHS * updates)
                if params["schedule"] == "cosine":
                    rate *= 0.5 * (1.0 + math.cos(math.pi * done))
                dropout = params["dropout"]
                network.differentiate(samples.train_x[index_B], target_NC[index_B], dropout, rng)
                update(rate)
            metrics = validated(network, samples)
        yield metrics


def validated(network: Network, samples: Samples) -> dict[str, float]:
    """Return the cross-entropy and the share of errors; NaN, and chance: it diverged."""
    logit_NC = network.logits(samples.test_x)
    loss = -float(log_softmax(logit_NC, axis=1)[np.arange(len(logit_NC)), samples.test_y].mean())
    if not math.isfinite(loss):
        return {"loss": math.nan, "error": 1.0 - 1.0 / samples.classes}
    return {"loss": loss, "error": float((logit_NC.argmax(axis=1) != samples.test_y).mean())}


def main() -> None:
    """Train some random configurations, and print the time and the last metrics of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    samples = samples_of(parser.parse_args().name)
    rng = np.random.default_rng(0)
    for seed in range(10):
        params = Space.from_dict(SPACE).sample(rng)
        began = time.perf_counter()
        *_, last = trained(params, samples, seed)
        seconds = time.perf_counter() - began
        print(f"{seconds:.2f} s, loss {last['loss']:.3f}, error {last['error']:.3f}")


if __name__ == "__main__":
    main()
