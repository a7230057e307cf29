"""Made-up losses of numbers, integers and choices together."""

import math

import numpy as np

from problems.continuous import ackley, moved, rosenbrock
from problems.problem import Loss, Params, Problem
from searchers import Choice, Float, Int, Space

SHAPES = {"flat": 0.0, "round": 0.9, "steep": 2.0, "odd": -1.4}

ACKLEY = Space(
    {
        **{name: Float(-3.0, 3.0) for name in ("a", "b", "c")},
        "i": Int(0, 10),
        "j": Int(-20, 5),
        "shape": Choice(tuple(SHAPES)),
        "flag": Choice((True, False)),
    }
)


def mixed_ackley(params: Params) -> float:
    """0 at one configuration; three quarters of it are off the numbers' best place."""
    z = [params["a"] - 0.8, params["b"] + 1.9, params["c"] - 1.3]
    z += [0.6 * (params["i"] - 3), 0.2 * (params["j"] + 13)]
    return ackley(np.array([*z, SHAPES[str(params["shape"])], 0.0 if params["flag"] else 0.7]))


VALLEY = Space(
    {
        "lr": Float(1e-6, 1.0, log=True),
        "batch": Choice((8, 16, 32, 64, 128, 256, 512), ordered=True),
        "decay": Float(1e-8, 0.1, log=True),
        "warmup": Int(0, 30),
        "depth": Int(1, 24),
        "width": Int(16, 2048, log=True),
        "dropout": Float(0.0, 0.8),
        "schedule": Choice(("constant", "cosine", "linear", "step")),
        "unused": Float(0.0, 1.0),
    }
)
SCHEDULES = {
    "constant": (0.10, -0.4),
    "cosine": (0.0, 0.0),
    "linear": (0.01, 0.2),
    "step": (0.05, 0),
}


def valley(params: Params) -> float:
    """A training's loss as folklore has it: the learning rate's best place moves with the batch,
    the depth and the schedule; too high a rate diverges; more regularization helps large models.
    """
    p = {name: float(value) for name, value in params.items() if name != "schedule"}
    worse, shift = SCHEDULES[str(params["schedule"])]
    best = -2.6 + 0.15 * (math.log2(p["batch"]) - 5) - 0.04 * p["depth"] + shift
    off = math.log10(p["lr"]) - best + 0.01 * (p["warmup"] - 8)
    loss = 0.3 + worse + 0.3 * off**2 / (1 + 0.2 * off**2)
    loss += 2.0 / (1 + math.exp(-8 * (off - 1.4)))  # divergence
    size = math.log2(p["width"]) + 0.15 * p["depth"]
    loss += 0.015 * (size - 10.5) ** 2 + 0.02 * (math.log10(p["decay"]) + 6 - 0.3 * size) ** 2
    loss += 0.4 * (p["dropout"] - 0.04 * max(size - 6, 0)) ** 2
    return loss + 0.01 * (math.log2(p["batch"]) - 6) ** 2 + 0.0006 * (p["warmup"] - 8) ** 2


def integers() -> tuple[Space, Loss]:
    """Rosenbrock's valley over 6 integers and 2 numbers."""
    names = [f"i{index}" for index in range(6)]
    space = Space({**{n: Int(0, 15) for n in names}, "x": Float(0, 1), "y": Float(0, 1)})
    function = moved(rosenbrock, 8, 6, 0.3)

    def loss(params: Params) -> float:
        numbers = [params[name] / 15 for name in names]
        return math.log1p(function(np.array([*numbers, params["x"], params["y"]], dtype=float)))

    return space, loss


def tables() -> tuple[Space, Loss]:
    """Four choices of five values, each with an effect and one on its neighbour, and 3 numbers."""
    rng = np.random.default_rng(7)
    alone, paired = rng.normal(0, 1, (4, 5)), rng.normal(0, 0.5, (3, 5, 5))
    places = rng.uniform(0.15, 0.85, (5, 3))
    names = [f"c{index}" for index in range(4)]
    space = Space(
        {
            **{name: Choice(("a", "b", "c", "d", "e")) for name in names},
            **{name: Float(0.0, 1.0) for name in ("x", "y", "z")},
        }
    )

    def loss(params: Params) -> float:
        chosen = ["abcde".index(str(params[name])) for name in names]
        total = sum(alone[place, value] for place, value in enumerate(chosen))
        total += sum(paired[place, chosen[place], chosen[place + 1]] for place in range(3))
        numbers = np.array([params["x"], params["y"], params["z"]], dtype=float)
        return float(total + 6 * np.sum((numbers - places[chosen[0]]) ** 2))

    return space, loss


PROBLEMS = [
    Problem("mixed_ackley", "mixed", ACKLEY, mixed_ackley),
    Problem("valley", "mixed", VALLEY, valley),
    Problem("integers", "mixed", *integers()),
    Problem("tables", "mixed", *tables()),
]
