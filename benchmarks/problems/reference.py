"""Works out what regrets are measured against: `python -m problems.reference own [NAME ...]`.

Run it in this folder's parent; `public` in place of `own` is for the tables of others. The best
loss is a table's lowest, else what differential evolution finds in some 40,000 evaluations without
noise, unless the optimum is known.

Source: Storn & Price, Journal of Global Optimization 11 (1997).
"""

import json
import sys
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.optimize import differential_evolution

from problems.catalogue import Catalogue, find
from problems.problem import Array, Problem

KNOWN = {"branin2": 0.39788735772973816, "goldstein2": 3.0, "hartmann6": -3.322368011415515}
KNOWN |= dict.fromkeys(("rastrigin3", "rosenbrock5", "levy8", "ackley10", "ellipsoid20"), 0.0)
EVALUATIONS = 40_000
SEEDS = 31
BUDGET = 60


@runtime_checkable
class HasBest(Protocol):
    """A loss whose lowest value is known, as that of a table."""

    @property
    def best(self) -> float: ...


def best(problem: Problem) -> float:
    base = problem.name.removesuffix("_noisy")
    if base in KNOWN:
        return KNOWN[base]
    if isinstance(problem.loss, HasBest):
        return problem.loss.best
    width = len(problem.space.searched)

    def loss(unit: Array) -> float:
        return problem.loss(problem.space.decode(unit))

    found = differential_evolution(
        loss,
        [(0.0, 1.0)] * width,
        popsize=200 // width,
        maxiter=EVALUATIONS // 200,
        tol=0.0,
        init="sobol",
        polish=False,
        seed=0,
    )
    return float(found.fun)


def random(problem: Problem) -> float:
    """The median loss of the configurations that random search would name the best."""
    ends = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 60])
        losses = np.array(
            [problem.loss(problem.space.sample(rng)) for _ in range(BUDGET)], dtype=float
        )
        told = losses + problem.noise * rng.normal(size=BUDGET)
        ends.append(losses[np.argmin(told)])
    return float(np.median(ends))


def main(catalogue: Catalogue, names: list[str]) -> None:
    known = json.loads(catalogue.file.read_text()) if catalogue.file.exists() else {}
    for name in names or catalogue.problems:
        problem = catalogue.problems[name]
        known[name] = {"best": best(problem), "random": random(problem)}
        print(name, known[name], flush=True)
    catalogue.file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(find("public" if sys.argv[1] == "public" else "own"), sys.argv[2:])
