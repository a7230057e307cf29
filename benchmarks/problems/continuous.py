"""Classical functions of 2 to 20 real numbers, lowest at 0 unless said.

Those that would have their lowest point in the centre or along the axes are shifted by up to 3.5
of 5 and rotated, at random, each in its own fixed way.

Sources: Surjanovic & Bingham, Virtual Library of Simulation Experiments (2013), for the formulas;
Hansen et al., COCO (2021), for shift and rotation.
"""

from collections.abc import Callable

import numpy as np
from scipy.stats import ortho_group

from problems.problem import Array, Loss, Params, Problem
from searchers import Float, Space

Function = Callable[[Array], float]
HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
HARTMANN_C = np.array([1.0, 1.2, 3.0, 3.2])


def branin(x: Array) -> float:
    """0.397887 at three points."""
    a, b = 15 * x[0] - 5, 15 * x[1]
    valley = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    return float(valley**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def goldstein(x: Array) -> float:
    """3 at one point, and a million elsewhere."""
    a, b = 4 * x[0] - 2, 4 * x[1] - 2
    first = 19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2
    second = 18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2
    return float((1 + (a + b + 1) ** 2 * first) * (30 + (2 * a - 3 * b) ** 2 * second))


def hartmann(x: Array) -> float:
    """-3.32237 at one of six basins."""
    return float(-HARTMANN_C @ np.exp(-(HARTMANN_A * (x - HARTMANN_P) ** 2).sum(axis=1)))


def rosenbrock(z: Array) -> float:
    w = z + 1.0
    return float(np.sum(100 * (w[1:] - w[:-1] ** 2) ** 2 + (w[:-1] - 1) ** 2))


def rastrigin(z: Array) -> float:
    return float(np.sum(z**2 + 10 * (1 - np.cos(2 * np.pi * z))))


def ackley(z: Array) -> float:
    spread = np.exp(-0.2 * np.sqrt(np.mean(z**2)))
    return float(20 - 20 * spread + np.e - np.exp(np.mean(np.cos(2 * np.pi * z))))


def levy(z: Array) -> float:
    w = 1 + z / 4
    middle = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)
    last = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return float(np.sin(np.pi * w[0]) ** 2 + np.sum(middle) + last)


def ellipsoid(z: Array) -> float:
    return float(np.sum(10 ** np.linspace(0.0, 3.0, len(z)) * z**2))


def moved(function: Function, dimensions: int, instance: int, scale: float = 1.0) -> Function:
    """The function of `scale` times the rotated distance from a random place."""
    rng = np.random.default_rng([instance, dimensions])
    place = rng.uniform(-3.5, 3.5, dimensions)
    rotation = ortho_group.rvs(dimensions, random_state=rng)
    return lambda x: function(scale * rotation @ (10 * x - 5 - place))


def of(function: Function, dimensions: int) -> tuple[Space, Loss]:
    """The space [0, 1]^dimensions, and the function as a loss of its configurations."""
    names = [f"x{index}" for index in range(dimensions)]

    def loss(params: Params) -> float:
        return function(np.array([params[name] for name in names], dtype=float))

    return Space({name: Float(0.0, 1.0) for name in names}), loss


PROBLEMS = [
    Problem("branin2", "continuous", *of(branin, 2)),
    Problem("goldstein2", "continuous", *of(goldstein, 2)),
    Problem("rastrigin3", "continuous", *of(moved(rastrigin, 3, 1, 0.4), 3)),
    Problem("rosenbrock5", "continuous", *of(moved(rosenbrock, 5, 2, 0.4), 5)),
    Problem("hartmann6", "continuous", *of(hartmann, 6)),
    Problem("levy8", "continuous", *of(moved(levy, 8, 3), 8)),
    Problem("ackley10", "continuous", *of(moved(ackley, 10, 4), 10)),
    Problem("ellipsoid20", "continuous", *of(moved(ellipsoid, 20, 5), 20)),
]
