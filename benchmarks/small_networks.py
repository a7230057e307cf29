"""Small perceptrons that classify small data, trained epoch by epoch: what a race can afford.

`python benchmarks/small_networks.py NAME` trains a few and prints what it takes.
"""

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from curve_data import LOADERS, Samples
from torch import nn
from torch.nn import functional

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


@cache
def samples_of(name: str) -> Samples:
    return LOADERS[name]()


def trained(params: Params, samples: Samples, seed: int) -> Iterator[dict[str, float]]:
    """Yield the metrics of each epoch, on samples that were not trained on.

    Several trainings may take turns: each has random numbers of its own.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(params, samples)
        random_state = torch.get_rng_state()
    optimizer = _optimizer(params, network)
    batch = int(params["batch"])
    steps = len(samples.train_x) // batch
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * steps)
    for _ in range(EPOCHS):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_state)
            for index_B in torch.randperm(len(samples.train_x))[: steps * batch].split(batch):
                optimizer.zero_grad()
                functional.cross_entropy(
                    network(samples.train_x[index_B]),
                    samples.train_y[index_B],
                    label_smoothing=params["smoothing"],
                ).backward()
                optimizer.step()
                if params["schedule"] == "cosine":
                    falling.step()
            random_state = torch.get_rng_state()
        yield _validated(network, samples)


def _network(params: Params, samples: Samples) -> nn.Sequential:
    activation = nn.ReLU if params["activation"] == "relu" else nn.Tanh
    layers: list[nn.Module] = []
    inputs = samples.train_x.shape[1]
    for _ in range(int(params["depth"])):
        width = int(params["width"])
        layers += [nn.Linear(inputs, width), activation(), nn.Dropout(params["dropout"])]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, samples.classes))


def _optimizer(params: Params, network: nn.Module) -> torch.optim.Optimizer:
    rate, decay = params["lr"], params["weight_decay"]
    if params["optimizer"] == "sgd":
        momentum = params["momentum"]
        return torch.optim.SGD(network.parameters(), rate, momentum=momentum, weight_decay=decay)
    return torch.optim.AdamW(network.parameters(), rate, weight_decay=decay, fused=True)


@torch.no_grad()
def _validated(network: nn.Module, samples: Samples) -> dict[str, float]:
    """Return the cross-entropy and the share of errors; NaN, and chance: it diverged."""
    network.eval()
    logits = network(samples.test_x)
    network.train()
    loss = float(functional.cross_entropy(logits, samples.test_y))
    if not math.isfinite(loss):
        return {"loss": math.nan, "error": 1.0 - 1.0 / samples.classes}
    return {"loss": loss, "error": float((logits.argmax(dim=1) != samples.test_y).float().mean())}


def main() -> None:
    """Train some random configurations, and print the time and the last metrics of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    samples = samples_of(parser.parse_args().name)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for seed in range(10):
        began = time.perf_counter()
        *_, last = trained(Space.from_dict(SPACE).sample(rng), samples, seed)
        seconds = time.perf_counter() - began
        print(f"{seconds:.2f} s, loss {last['loss']:.3f}, error {last['error']:.3f}")


if __name__ == "__main__":
    main()
