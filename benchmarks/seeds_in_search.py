"""Seeds inside the search beside one seed a trial, at equal steps, on recorded learning curves.

`python benchmarks/seeds_in_search.py CURVES.npz [--quick]` prints Markdown; README.md says what the
figures mean, and what the file holds.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simulated import sweep
from tables import figure, heading, table

from hposvc import spec as specs
from hposvc.state.sweep import SweepState

Array = NDArray[np.float64]

LAST = 5  # evaluations whose mean is a training's value
PLACES = 9  # decimal places to which a configuration is told apart
METHODS: Mapping[str, Mapping[str, int] | None] = {
    "one seed": None,
    "min 1, max 3": {"min": 1, "max": 3},
    "min 2, max 3": {"min": 2, "max": 3},
    "min 3, max 3": {"min": 3, "max": 3},
}


@dataclass(frozen=True)
class Ground:
    """Learning curves of each configuration and seed; more is better."""

    names: tuple[str, ...]
    configs_NP: Array
    returns_NSE: Array  # by evaluation

    @property
    def true_N(self) -> Array:
        """The mean over seeds of the last evaluations."""
        mean_N: Array = self.returns_NSE[:, :, -LAST:].mean((1, 2))
        return mean_N

    def row(self, params: Mapping[str, Any]) -> int:
        wanted_P = [params[name] for name in self.names]
        return int(np.abs(np.round(self.configs_NP, PLACES) - wanted_P).sum(1).argmin())

    def parameters(self) -> dict[str, Any]:
        columns = np.round(self.configs_NP, PLACES).T
        return {
            name: {"values": np.unique(column).tolist(), "ordered": True}
            for name, column in zip(self.names, columns, strict=True)
        }


@cache
def read(file: str) -> Ground:
    """Read a file of numpy arrays: `names`, `x` (configurations), `returns` (of each seed)."""
    with np.load(file) as held:
        names = tuple(map(str, held["names"]))
        return Ground(names, held["x"].astype(float), held["returns"].astype(float))


def curve(params: Mapping[str, Any], step: int, seed: int) -> tuple[dict[str, float], float]:
    """What a simulated sweep calls: the return of an evaluation, which is a step."""
    ground = read(params["ground"])
    returns_S = ground.returns_NSE[ground.row(params), :, step - 1]
    if params["noise"] == "none":
        return {"return": float(returns_S.mean())}, 1.0
    of_sweep, number = divmod(seed, 1_000_003)
    order = np.random.default_rng([of_sweep, 7]).permutation(len(returns_S))
    if params["noise"] == "alone":  # a trial of one seed draws any of them
        return {"return": float(np.random.default_rng([of_sweep, number]).choice(returns_S))}, 1.0
    return {"return": float(returns_S[order[(number - 1) % len(order)]])}, 1.0


@dataclass(frozen=True)
class Found:
    """What a sweep chose."""

    regret: float  # of its mean over all seeds, as a share of the range of all configurations
    claimed: float  # by how much its value is above that, likewise
    trials: int
    seeds: int  # of the chosen trial
    steps: int


def run(job: tuple[str, str, str, int | None, int]) -> Found:
    """Run a sweep until its budget of steps is used up, or its trials; see `main`."""
    file, method, noise, steps, seed = job
    ground = read(file)
    given = {
        "metric": {"name": "return", "goal": "maximize", "select": f"mean_{LAST}"},
        "parameters": {"ground": file, "noise": noise, **ground.parameters()},
        "fidelity": {"max": ground.returns_NSE.shape[2]},
        "search": "gp",
        "warm_start": None,
        "trials": {"max": len(ground.true_N) if steps else 40, "seeds": METHODS[method]},
        "budget": {"wall": f"{steps}s"} if steps else {},
        "seed": seed,
    }
    engine = {"type": "simulate", "curve": f"{curve.__module__}:{curve.__name__}"}
    state = SweepState(specs.load({**given, "engine": engine}))
    for event in sweep(given, curve):
        state.apply(event)
    best = state.trials[state.best or ""]
    true_N, at = ground.true_N, ground.row(best.params)
    extent = float(np.ptp(true_N))
    return Found(
        regret=float(true_N.max() - true_N[at]) / extent,
        claimed=float((best.value or 0.0) - true_N[at]) / extent,
        trials=len(state.trials),
        seeds=len(best.runs),
        steps=round(state.rank_s),
    )


def told(found: Sequence[Found], beside: Sequence[Found]) -> list[str]:
    """Mean regret with its standard error, as a share of one seed's, and the other figures."""

    def mean(name: str, of: Sequence[Found] = found) -> float:
        return float(np.mean([getattr(one, name) for one in of]))

    error = float(np.std([one.regret for one in found])) / len(found) ** 0.5
    share = mean("regret") / mean("regret", beside) if beside else 1.0
    return [
        f"{figure(mean('regret'), 3)} ± {figure(error, 3)}",
        figure(share),
        f"{mean('claimed'):.1%}",
        figure(mean("trials"), 0),
        figure(mean("seeds"), 1),
    ]


def main() -> None:
    """Run all sweeps, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", type=Path, help="numpy arrays: names, x and returns")
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--trainings", type=int, nargs="+", default=[40, 60, 80, 108])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    if args.quick:
        args.trainings, args.sweeps = args.trainings[:1], 2
    file = str(args.curves.resolve())
    length = read(file).returns_NSE.shape[2]
    rows, cost = [], []
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        for trainings in args.trainings:
            alone: list[Found] = []
            for method, seeds in METHODS.items():
                noise = "alone" if seeds is None else "shared"
                jobs = [(file, method, noise, trainings * length, at) for at in range(args.sweeps)]
                found = list(pool.map(run, jobs))
                rows.append([method, str(trainings), *told(found, alone)])
                alone = alone or found
        for method in METHODS:
            jobs = [(file, method, "none", None, seed) for seed in range(args.sweeps)]
            steps = [one.steps for one in pool.map(run, jobs)]
            cost.append([method, figure(float(np.mean(steps)) / (40 * length) - 1, 3)])
    print(heading(("optuna",)))
    head = ["seeds", "trainings", "regret", "of one seed's", "over-stated", "trials", "of the best"]
    print(table(head, rows))
    print(table(["seeds", "more steps without noise"], cost))


if __name__ == "__main__":
    main()
