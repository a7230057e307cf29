"""Made-up losses whose parameters depend on other parameters."""

import math
from itertools import pairwise

import numpy as np

from problems.problem import Loss, Params, Problem
from searchers import Choice, Float, Int, Space

GRADIENT = {"kind": ("sgd", "adam", "rmsprop")}
OPTIMIZERS = Space(
    {
        "kind": Choice(("sgd", "adam", "rmsprop", "lbfgs")),
        "lr": Float(1e-6, 10.0, log=True, when=GRADIENT),
        "momentum": Float(0.0, 0.99, when={"kind": ("sgd",)}),
        "nesterov": Choice((True, False), when={"kind": ("sgd",)}),
        "beta1": Float(0.5, 0.999, when={"kind": ("adam",)}),
        "beta2": Float(0.9, 0.9999, when={"kind": ("adam",)}),
        "alpha": Float(0.5, 0.999, when={"kind": ("rmsprop",)}),
        "history": Int(2, 50, log=True, when={"kind": ("lbfgs",)}),
        "decay": Float(1e-8, 0.1, log=True),
        "batch": Int(8, 512, log=True),
    }
)


def optimizers(params: Params) -> float:
    """Each optimizer has its best learning rate; the best of all has the narrowest valley."""
    p: dict[str, float] = {n: float(v) for n, v in params.items() if n != "kind"}
    kind, batch = params["kind"], math.log2(p["batch"])
    loss = 0.02 * (batch - 5.5) ** 2 + 0.03 * (math.log10(p["decay"]) + 4.2) ** 2
    if kind == "lbfgs":
        return loss + 0.35 + 0.04 * (math.log2(p["history"]) - 3.5) ** 2 + 0.05 * (9 - batch)
    rate = math.log10(p["lr"])
    if kind == "sgd":
        off = rate - (-0.8 + 0.2 * (batch - 6) + 1.5 * math.log10(1.02 - p["momentum"]) * 0.6)
        return loss + 0.5 * off**2 + 0.3 * (p["momentum"] - 0.9) ** 2 + 0.02 * (1 - p["nesterov"])
    if kind == "adam":
        off = rate - (-3.1 + 0.1 * (batch - 6))
        betas = 0.4 * (p["beta1"] - 0.88) ** 2 + 6 * (p["beta2"] - 0.985) ** 2
        return loss + 0.08 + 0.15 * off**2 / (1 + 0.1 * off**2) + betas
    return loss + 0.12 + 0.2 * abs(rate + 3.0) + 0.3 * (p["alpha"] - 0.95) ** 2


LAYERS = Space(
    {
        "depth": Int(1, 4),
        **{
            f"width{level}": Int(4, 512, log=True, when={"depth": tuple(range(level, 5))})
            for level in range(1, 5)
        },
        "activation": Choice(("relu", "tanh", "gelu")),
        "lr": Float(1e-5, 1.0, log=True),
        "skip": Choice((True, False), when={"depth": (3, 4)}),
    }
)
ACTIVATIONS = {"relu": 0.03, "tanh": 0.12, "gelu": 0.0}


def layers(params: Params) -> float:
    """Three layers that get narrower are best; deeper ones need a lower rate and skips."""
    depth = int(params["depth"])
    widths = [math.log2(params[f"width{level}"]) for level in range(1, depth + 1)]
    loss = {1: 0.45, 2: 0.12, 3: 0.0, 4: 0.02}[depth] + ACTIVATIONS[str(params["activation"])]
    loss += 0.03 * (widths[0] - 7.2) ** 2
    loss += sum(0.04 * (low - high + 1.1) ** 2 for high, low in pairwise(widths))
    if depth >= 3 and not params["skip"]:
        loss += 0.08 * (depth - 2)
    off = math.log10(params["lr"]) + 1.9 + 0.35 * depth
    return loss + 0.2 * off**2 / (1 + 0.1 * off**2) + (1.0 if off > 1.5 else 0.0)


MODELS = Space(
    {
        "model": Choice(("boosting", "kernel", "network")),
        "trees": Int(10, 1000, log=True, when={"model": ("boosting",)}),
        "shrinkage": Float(1e-3, 1.0, log=True, when={"model": ("boosting",)}),
        "leaves": Int(2, 256, log=True, when={"model": ("boosting",)}),
        "C": Float(1e-3, 1e3, log=True, when={"model": ("kernel",)}),
        "kernel": Choice(("rbf", "poly"), when={"model": ("kernel",)}),
        "gamma": Float(1e-5, 10.0, log=True, when={"kernel": ("rbf",)}),
        "degree": Int(2, 6, when={"kernel": ("poly",)}),
        "solver": Choice(("adam", "sgd"), when={"model": ("network",)}),
        "lr": Float(1e-6, 1.0, log=True, when={"model": ("network",)}),
        "momentum": Float(0.0, 0.99, when={"solver": ("sgd",)}),
        "hidden": Int(4, 512, log=True, when={"model": ("network",)}),
        "scaling": Choice(("none", "standard", "range")),
    }
)


def models(params: Params) -> float:
    """Three models, conditions two deep, and a preparation that matters to two of them."""
    p = params
    unscaled = {"none": 1.0, "standard": 0.0, "range": 0.3}[str(p["scaling"])]

    def log(name: str) -> float:
        return math.log10(p[name])

    if p["model"] == "boosting":
        off = log("trees") + log("shrinkage") - 1.1
        return 0.22 + 0.08 * off**2 + 0.05 * (log("leaves") - 1.0) ** 2 + 0.004 * (3 - log("trees"))
    if p["model"] == "kernel":
        if p["kernel"] == "poly":
            off = abs(float(p["degree"]) - 3)
            return 0.35 + 0.3 * unscaled + 0.02 * off + 0.02 * (log("C") - 1) ** 2
        ridge = 0.06 * (log("C") + 0.7 * log("gamma") + 0.2) ** 2
        return 0.17 + 0.25 * unscaled + ridge + 0.05 * (log("gamma") + 2.2) ** 2
    rate = log("lr") + (2.7 if p["solver"] == "adam" else 1.4)
    loss = 0.19 + 0.3 * unscaled + 0.12 * rate**2 / (1 + 0.2 * rate**2)
    if p["solver"] == "sgd":
        loss += 0.2 * (float(p["momentum"]) - 0.85) ** 2 - 0.01
    return loss + 0.05 * (log("hidden") - 2.0) ** 2


def branches() -> tuple[Space, Loss]:
    """Five branches of three numbers each, whose best losses are close and basins differ."""
    rng = np.random.default_rng(8)
    branches, parts = "abcde", ("x", "y", "z")
    floors = dict(zip(branches, (0.0, 0.06, 0.1, 0.25, 0.5), strict=True))
    places = {branch: rng.uniform(0.1, 0.9, 3) for branch in branches}
    sharpness = dict(zip(branches, (9.0, 3.0, 4.0, 1.0, 2.0), strict=True))
    space = Space(
        {
            "branch": Choice(tuple(branches)),
            **{
                f"{branch}_{part}": Float(0.0, 1.0, when={"branch": (branch,)})
                for branch in branches
                for part in parts
            },
        }
    )

    def loss(params: Params) -> float:
        branch = str(params["branch"])
        x = np.array([params[f"{branch}_{part}"] for part in parts], dtype=float)
        off = x - places[branch]
        ripple = 0.05 * np.sum(1 - np.cos(12 * off))
        return float(floors[branch] + sharpness[branch] * np.sum(off**2) + ripple)

    return space, loss


PROBLEMS = [
    Problem("optimizers", "conditional", OPTIMIZERS, optimizers),
    Problem("layers", "conditional", LAYERS, layers),
    Problem("models", "conditional", MODELS, models),
    Problem("branches", "conditional", *branches()),
]
