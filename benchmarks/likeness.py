"""What it is worth to `gp` to know how alike tied values are, beside all of them unlike.

`python benchmarks/likeness.py [--seeds 20] [--problems NAME ...]` prints Markdown. Choices among
sizes, which are mappings (searchers/ties.py), with three ranges beside them. In all but one problem
the loss is smooth in the logarithms of the members; in that one it has nothing to do with them.
Normalised regret: 0 is the optimum, 1 what random search has after 60 evaluations.

Axes: P pairs (problem, seed).
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2
from multiprocessing import Pool
from unittest.mock import patch

import numpy as np
import tables as markdown
from standings import resampled
from threadpoolctl import threadpool_limits

from searchers import Optimizer
from searchers.gp import encoding
from searchers.gp.searcher import GaussianProcess
from searchers.space import Params, Space

AT = (20, 30, 50)
RESAMPLES = 2000
SIZES = ((2, 64), (2, 256), (4, 128), (4, 512), (6, 256), (8, 384), (8, 1024), (12, 768))
RANGES = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "decay": {"min": 1e-6, "max": 1e-1, "log": True},
    "dropout": {"min": 0.0, "max": 0.5},
}
LUCK = np.random.default_rng(7).permutation(len(SIZES)) / len(SIZES)


def sizes(pairs: tuple[tuple[int, int], ...], **others: Sequence[str]) -> Space:
    """Return a space with a choice among so many layers of such a width."""
    mappings = [
        {"name": f"size {place}", "layers": layers, "width": width}
        | {name: values[place % len(values)] for name, values in others.items()}
        for place, (layers, width) in enumerate(pairs)
    ]
    return Space.from_dict({"size": {"values": mappings}, **RANGES})


def _rest(params: Params, best_lr: float) -> float:
    """Return the part of the loss that the ranges add; 0 at best."""
    away = (np.log10(params["lr"]) - best_lr) / 2, (np.log10(params["decay"]) + 3) / 4
    return float(2 * away[0] ** 2 + 0.3 * away[1] ** 2 + (params["dropout"] - 0.2) ** 2)


def _size(layers: int, width: int) -> float:
    return 0.3 * (log2(width) - 8.6) ** 2 + 0.4 * (log2(layers) - 2.3) ** 2


def smooth(params: Params) -> float:
    layers, width = params["layers"], params["width"]
    return _size(layers, width) + _rest(params, -1.5 - 0.2 * log2(width / 64))


def two_kinds(params: Params) -> float:
    return smooth(params) + (0.5 if params["norm"] == "none" else 0.0)


def unrelated(params: Params) -> float:
    return float(2 * LUCK[int(str(params["name"]).split()[1])]) + _rest(params, -2.5)


@dataclass(frozen=True)
class Problem:
    """A loss over a space."""

    space: Space
    loss: Callable[[Params], float]


GRID = tuple((layers, width) for layers in (1, 2, 4, 8) for width in (32, 64, 128, 256, 512))
PROBLEMS = {
    "8 sizes": Problem(sizes(SIZES), smooth),
    "20 sizes": Problem(sizes(GRID), smooth),
    "20 sizes, two kinds": Problem(sizes(GRID, norm=("layer", "none", "layer")), two_kinds),
    "8 sizes, unrelated": Problem(sizes(SIZES), unrelated),
}


@cache
def scale(problem: str) -> tuple[float, float]:
    """Return the lowest loss, and by how much random search is above it after 60 evaluations."""
    known, rng = PROBLEMS[problem], np.random.default_rng(0)
    drawn = np.array([known.loss(known.space.sample(rng)) for _ in range(60 * 200)])
    best = min(known.loss(params) for params in _at_best(known, rng))
    return best, float(np.median(drawn.reshape(-1, 60).min(axis=1))) - best


def _at_best(known: Problem, rng: np.random.Generator) -> list[Params]:
    """Return configurations among which is the best one: ranges matter apart from each other."""
    found = []
    for _ in range(400):
        params = known.space.sample(rng)
        fixed = {**params, "decay": 1e-3, "dropout": 0.2}
        found += [{**fixed, "lr": 10.0**exponent} for exponent in np.arange(-5, -1, 0.02)]
    return found


def run(job: tuple[str, int, bool]) -> tuple[tuple[str, int, bool], list[float]]:
    """Return the regret of one search at each of AT."""
    problem, seed, alike = job
    known = PROBLEMS[problem]
    best, span = scale(problem)
    none = patch.object(encoding, "places", lambda space, name: np.empty((space[name].count, 0)))
    with threadpool_limits(1):
        if not alike:
            none.start()
        try:
            optimizer = Optimizer(GaussianProcess(), known.space, seed=seed)
            losses = []
            for _ in range(max(AT)):
                trial = optimizer.ask()
                losses.append(known.loss(trial.params))
                optimizer.tell(trial, losses[-1])
        finally:
            if not alike:
                none.stop()
    return job, [(min(losses[:at]) - best) / span for at in AT]


def row(
    name: str, problems: list[str], seeds: int, found: dict[tuple[str, int, bool], list[float]]
):
    """Return a row: regrets with all unlike, then their change with an interval."""
    pairs = [(problem, seed) for problem in problems for seed in range(seeds)]
    cells = [name]
    unlike_PA = np.array([found[*pair, False] for pair in pairs])
    alike_PA = np.array([found[*pair, True] for pair in pairs])
    for place in range(len(AT)):
        change_P = alike_PA[:, place] - unlike_PA[:, place]
        rng = np.random.default_rng(0)
        means = [change_P[resampled(pairs, rng)].mean() for _ in range(RESAMPLES)]
        low, high = np.quantile(means, [0.025, 0.975])
        before, after = unlike_PA[:, place].mean(), alike_PA[:, place].mean()
        cells.append(f"{before:.3f} → {after:.3f} ({low:+.3f} – {high:+.3f})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    args = parser.parse_args()
    jobs = [
        (problem, seed, alike)
        for problem in args.problems
        for seed in range(args.seeds)
        for alike in (False, True)
    ]
    with Pool(args.processes) as pool:
        found = dict(pool.imap_unordered(run, jobs))
    rows = [row(problem, [problem], args.seeds, found) for problem in args.problems]
    print(markdown.heading(("numpy", "scipy")))
    print(markdown.table(["regret: unlike → alike", *(f"at {at}" for at in AT)], rows))


if __name__ == "__main__":
    main()
