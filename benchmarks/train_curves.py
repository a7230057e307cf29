"""Train many small networks at once, and keep the learning curve of each.

`python benchmarks/train_curves.py NAME` takes 2 to 5 minutes of one core and writes
`benchmarks/data/curves-NAME.npz`, which `learning_curves.py` completes.

Half of the configurations are uniform in the space; the others are mutations of the best so far,
in two rounds, since that is where a searcher will look.

Axes: C configurations that are trained together, B samples of a batch, I inputs, H hidden units
(padded to the widest; the padding is 0 and stays 0), K classes, E epochs, P parameters.
"""

import argparse
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from curve_data import FASHION, LOADERS, Samples, fashion
from learning_curves import EPOCHS, NAMES, Array, Params, file_of, space
from torch import Tensor
from torch.nn import functional

TOGETHER = 24  # configurations
LARGEST = 1e4  # loss that is told from divergence
BEST, STEP = 60, 0.12  # parents of a round of mutations, and how far these go


@dataclass
class Networks:
    """C perceptrons of one depth: weights (C, in, out) and biases (C, 1, out) of each layer."""

    layers: list[Tensor]
    dropout_C: Tensor
    tanh_C: Tensor  # whether the activation is tanh and not relu

    @classmethod
    def of(
        cls, configurations: Sequence[Params], inputs: int, classes: int, seed: int
    ) -> "Networks":
        generator = torch.Generator().manual_seed(seed)
        depth = int(configurations[0]["depth"])
        widths = [int(params["width"]) for params in configurations]
        sizes = [inputs, *[max(widths)] * depth, classes]
        layers = []
        for place, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            weight = torch.randn(len(widths), fan_in, fan_out, generator=generator)
            for index, width in enumerate(widths):
                rows = width if place else inputs
                weight[index] *= math.sqrt((2.0 if place < depth else 1.0) / rows)
                weight[index, rows:] = 0.0
                if place < depth:
                    weight[index, :, width:] = 0.0
            layers += [weight.requires_grad_(), torch.zeros(len(widths), 1, fan_out)]
            layers[-1].requires_grad_()
        return cls(
            layers,
            _column([params["dropout"] for params in configurations]),
            _column([float(params["activation"] == "tanh") for params in configurations]),
        )

    def logits(self, x: Tensor, training: bool) -> Tensor:
        """(C, B, K) of the same samples (B, I) for all."""
        hidden = x.expand(len(self.dropout_C), *x.shape)
        for place in range(0, len(self.layers) - 2, 2):
            hidden = torch.baddbmm(self.layers[place + 1], hidden, self.layers[place])
            hidden = torch.where(self.tanh_C > 0.5, hidden.tanh(), hidden.relu())
            if training:
                kept = torch.rand(hidden.shape) >= self.dropout_C
                hidden = hidden * kept / (1.0 - self.dropout_C)
        return torch.baddbmm(self.layers[-1], hidden, self.layers[-2])


@dataclass
class Optimizer:
    """SGD with momentum, or AdamW, with a rate for each configuration."""

    rate_C: Tensor
    decay_C: Tensor
    momentum_C: Tensor | None  # None: AdamW
    cosine_C: Tensor  # whether the rate falls to 0 and is not constant
    first: list[Tensor]
    second: list[Tensor]
    updates: int = 0

    @classmethod
    def of(cls, configurations: Sequence[Params], layers: Sequence[Tensor]) -> "Optimizer":
        is_sgd = configurations[0]["optimizer"] == "sgd"
        return cls(
            _column([params["lr"] for params in configurations]),
            _column([params["weight_decay"] for params in configurations]),
            _column([params["momentum"] for params in configurations]) if is_sgd else None,
            _column([float(params["schedule"] == "cosine") for params in configurations]),
            [torch.zeros_like(layer) for layer in layers],
            [torch.zeros_like(layer) for layer in layers],
        )

    @torch.no_grad()
    def step(self, layers: Sequence[Tensor], done: float) -> None:
        """One update; `done` is the share of the training that is over."""
        self.updates += 1
        cosine = 0.5 + 0.5 * math.cos(math.pi * done)
        rate_C = self.rate_C * torch.where(self.cosine_C > 0.5, cosine, 1.0)
        for layer, first, second in zip(layers, self.first, self.second, strict=True):
            assert layer.grad is not None
            if self.momentum_C is not None:
                first.mul_(self.momentum_C).add_(layer.grad).add_(layer * self.decay_C)
                layer.sub_(first * rate_C)
            else:
                first.lerp_(layer.grad, 0.1)
                second.lerp_(layer.grad**2, 0.001)
                layer.mul_(1.0 - rate_C * self.decay_C)
                scale = math.sqrt(1.0 - 0.999**self.updates) / (1.0 - 0.9**self.updates)
                layer.sub_(scale * rate_C * first / (second.sqrt() + 1e-8))
            layer.grad = None


def train(configurations: Sequence[Params], samples: Samples, seed: int) -> tuple[Array, Array]:
    """Validation losses and errors (both C x E) of configurations that share depth, batch and
    optimizer."""
    torch.manual_seed(seed)
    networks = Networks.of(configurations, samples.train_x.shape[1], samples.classes, seed)
    optimizer = Optimizer.of(configurations, networks.layers)
    smoothing_C = _column([params["smoothing"] for params in configurations])[:, :, 0]
    batch = int(configurations[0]["batch"])
    steps = len(samples.train_x) // batch
    losses, errors = [], []
    for epoch in range(EPOCHS):
        for step, index_B in enumerate(
            torch.randperm(len(samples.train_x))[: steps * batch].split(batch)
        ):
            log_p = functional.log_softmax(networks.logits(samples.train_x[index_B], True), dim=2)
            target = samples.train_y[index_B].expand(len(configurations), -1)
            hit = -log_p.gather(2, target[:, :, None])[:, :, 0]
            smooth = (1.0 - smoothing_C) * hit - smoothing_C * log_p.mean(dim=2)
            smooth.mean(dim=1).sum().backward()
            optimizer.step(networks.layers, (epoch + step / steps) / EPOCHS)
        loss_C, error_C = _validated(networks, samples)
        losses.append(loss_C)
        errors.append(error_C)
    return np.stack(losses, axis=1), np.stack(errors, axis=1)


@torch.no_grad()
def _validated(networks: Networks, samples: Samples) -> tuple[Array, Array]:
    """Cross-entropy and share of errors of each configuration; NaN, and chance: it diverged."""
    logits = networks.logits(samples.test_x, False)
    log_p = functional.log_softmax(logits, dim=2)
    target = samples.test_y.expand(len(logits), -1)
    loss_C = -log_p.gather(2, target[:, :, None])[:, :, 0].mean(dim=1)
    error_C = (logits.argmax(dim=2) != target).float().mean(dim=1)
    fine_C = torch.isfinite(loss_C)
    loss_C = torch.where(fine_C, loss_C.clamp(max=LARGEST), torch.nan)
    return loss_C.numpy(), torch.where(fine_C, error_C, 1.0 - 1.0 / samples.classes).numpy()


def _column(values: Sequence[object]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None, None]


@dataclass(frozen=True)
class Job:
    """Configurations that are trained together, by their places among all."""

    places: Sequence[int]
    configurations: Sequence[Params]
    seed: int


def jobs(configurations: Sequence[Params], seed: int) -> list[Job]:
    """Groups of one depth, batch and optimizer, and of similar widths."""
    groups: dict[tuple[object, ...], list[int]] = {}
    widest_first = sorted(range(len(configurations)), key=lambda i: -configurations[i]["width"])
    for place in widest_first:
        params = configurations[place]
        kind = tuple(params[name] for name in ("depth", "batch", "optimizer"))
        groups.setdefault(kind, []).append(place)
    parts = [
        members[first : first + TOGETHER]
        for _, members in sorted(groups.items(), key=str)
        for first in range(0, len(members), TOGETHER)
    ]
    return [
        Job(part, [configurations[place] for place in part], 1000 * seed + number)
        for number, part in enumerate(parts)
    ]


def train_all(
    configurations: Sequence[Params], samples: Samples, seed: int, processes: int
) -> tuple[Array, Array]:
    """The same for any configurations, in their order; any number of processes gives the same."""
    loss_NE, error_NE = (np.empty((len(configurations), EPOCHS)) for _ in range(2))
    todo = jobs(configurations, seed)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        trained = pool.map(partial(_train_job, samples), todo)
        for number, (job, (loss_CE, error_CE)) in enumerate(zip(todo, trained, strict=True), 1):
            loss_NE[job.places], error_NE[job.places] = loss_CE, error_CE
            print(f"round {seed + 1}: {number} of {len(todo)} groups trained", flush=True)
    return loss_NE, error_NE


def _train_job(samples: Samples, job: Job) -> tuple[Array, Array]:
    torch.set_num_threads(1)
    return train(job.configurations, samples, job.seed)


def mutations(unit_NP: Array, loss_NE: Array, error_NE: Array, count: int, seed: int) -> Array:
    """Unit rows near those whose last loss and last error rank best together."""
    rng = np.random.default_rng(seed)
    ranks = [
        np.argsort(np.argsort(np.nan_to_num(each[:, -1], nan=np.inf)))
        for each in (loss_NE, error_NE)
    ]
    best = np.argsort(np.minimum(*ranks), kind="stable")[:BEST]
    parent_NP = unit_NP[rng.choice(best, count)]
    moved_NP = parent_NP + STEP * rng.standard_normal(parent_NP.shape)
    reflected_NP: Array = np.abs(1.0 - np.abs(1.0 - moved_NP)).clip(0.0, 1.0)
    return reflected_NP


def main() -> None:
    """Train, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--configurations", type=int, default=800)
    parser.add_argument("--images", type=Path, default=FASHION, help="folder of Fashion-MNIST")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    loaders = {**LOADERS, "fashion": partial(fashion, arguments.images)}
    samples = loaders[arguments.name]()
    searched, quarter = space(), arguments.configurations // 4
    unit_NP = np.empty((0, len(searched.searched)))
    loss_NE, error_NE = np.empty((0, EPOCHS)), np.empty((0, EPOCHS))
    for seed, count in enumerate((2 * quarter, quarter, quarter)):
        if seed == 0:
            new_NP = np.random.default_rng(0).random((count, unit_NP.shape[1]))
        else:
            new_NP = mutations(unit_NP, loss_NE, error_NE, count, seed)
        configurations = [searched.decode(unit_P) for unit_P in new_NP]
        losses, errors = train_all(configurations, samples, seed, arguments.processes)
        unit_NP = np.vstack([unit_NP, [searched.encode(params) for params in configurations]])
        loss_NE, error_NE = np.vstack([loss_NE, losses]), np.vstack([error_NE, errors])
    arrays = {"unit": unit_NP.astype(np.float32)}
    arrays |= {"loss": loss_NE.astype(np.float16), "error": error_NE.astype(np.float16)}
    np.savez_compressed(file_of(arguments.name), **arrays)


if __name__ == "__main__":
    main()
