"""Mixtures of training data: ours and Optuna's TPE beside the best of 512 random ones.

`python benchmarks/mixtures.py FOLDER [--quick]` prints Markdown; README.md says what the figures
mean, and what the folder holds.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from tables import figure, heading, table

from searchers import Space, create

Array = NDArray[np.float64]

AFTER = (20, 40, 60)
MIXTURES = {"small": "train_mixture_1m.csv", "large": "test_mixture_60m.csv"}
LOSSES = {"small": "train_pile_loss_1m.csv", "large": "test_pile_loss_60m.csv"}
METRICS = ("pile_cc", "github", "mean of 13")
FLOOR = 0.003  # added to a share before its logarithm is taken; a third of what shares are told by
HELD_OUT = 10  # one in so many mixtures tells how good the regression is
METHODS = ("gp", "tpe", "random", "Optuna's TPE")


@dataclass(frozen=True)
class Ground:
    """Losses of a model trained on a mixture, by a regression on those that were measured."""

    domains: tuple[str, ...]
    mixture_MK: Array
    loss_M: Array
    fit: GaussianProcessRegressor
    error: float  # of the regression on mixtures that it had not seen
    ranks: float  # rank correlation with the measured losses of these

    def loss(self, mixture_K: Array) -> float:
        return float(self.fit.predict(_features(mixture_K[None]))[0])

    @property
    def best_measured(self) -> float:
        """The lowest of the mixtures that were measured, by the regression as all others."""
        return float(self.fit.predict(_features(self.mixture_MK)).min())


def _features(mixture_MK: Array) -> Array:
    return np.log(mixture_MK + FLOOR)


def _read(path: Path) -> tuple[list[str], Array]:
    with path.open() as file:
        names, *rows = csv.reader(file)
    return names[1:], np.array(rows, dtype=float)[:, 1:]


@cache
def ground(folder: str, size: str, metric: str) -> Ground:
    """Fit a regression to the measured mixtures of one size of model."""
    columns, mixture_MK = _read(Path(folder) / MIXTURES[size])
    mixture_MK /= mixture_MK.sum(axis=1, keepdims=True)  # they are rounded to three digits
    names, loss_ML = _read(Path(folder) / LOSSES[size])
    chosen = [index for index, name in enumerate(names) if metric in name]
    loss_M = loss_ML[:, chosen].mean(axis=1) if chosen else loss_ML.mean(axis=1)
    order = np.random.default_rng(0).permutation(len(loss_M))
    unseen, seen = np.split(order, [len(order) // HELD_OUT])
    guessed = _fitted(mixture_MK[seen], loss_M[seen]).predict(_features(mixture_MK[unseen]))
    error = float(np.sqrt(np.mean((guessed - loss_M[unseen]) ** 2)))
    ranks = float(spearmanr(guessed, loss_M[unseen])[0])
    domains = tuple(name.removeprefix("train_the_pile_") for name in columns)
    return Ground(domains, mixture_MK, loss_M, _fitted(mixture_MK, loss_M), error, ranks)


def _fitted(mixture_MK: Array, loss_M: Array) -> GaussianProcessRegressor:
    kernel = ConstantKernel() * Matern(np.ones(mixture_MK.shape[1]), nu=2.5) + WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of length scales at their bounds
        fit = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        return fit.fit(_features(mixture_MK), loss_M)


@dataclass(frozen=True)
class Job:
    folder: str
    metric: str
    method: str
    seed: int
    trials: int


def search(job: Job) -> tuple[Job, list[float], list[float], float]:
    """Return the losses in the order of the trials, the best mixture, and seconds a trial."""
    truth = ground(job.folder, "small", job.metric)
    losses: list[float] = []
    mixtures: list[Array] = []

    def measure(mixture_K: Array) -> float:
        mixtures.append(mixture_K)
        losses.append(truth.loss(mixture_K))
        return losses[-1]

    began = time.perf_counter()
    if job.method == METHODS[-1]:
        _search_by_optuna(len(truth.domains), measure, job)
    else:
        shares = {"shares": [*truth.domains], "zeros": True}
        space = Space.from_dict({"mix": shares})
        optimizer = create(job.method, space, seed=job.seed)
        for _ in range(job.trials):
            trial = optimizer.ask()
            mixture_K = np.array([trial.params[f"mix.{name}"] for name in truth.domains])
            optimizer.tell(trial, measure(mixture_K.astype(float)))
    seconds = (time.perf_counter() - began) / job.trials
    return job, losses, mixtures[int(np.argmin(losses))].tolist(), seconds


def _search_by_optuna(domains: int, measure: Callable[[Array], float], job: Job) -> None:
    """Search as Optuna's users do: exponential variates of uniform floats, divided by their sum."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        unit_K = np.array([trial.suggest_float(f"u{index}", 0.0, 1.0) for index in range(domains)])
        amount_K = -np.log(np.maximum(unit_K, 1e-12)) + 1e-9
        return measure(amount_K / amount_K.sum())

    sampler = optuna.samplers.TPESampler(seed=job.seed)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=job.trials)


def rank_when_large(folder: str, metric: str, mixture_K: Array) -> float:
    """Return how many of the mixtures that a larger model was trained on are better, in percent."""
    large = ground(folder, "large", metric)
    return 100.0 * float((large.loss_M < large.loss(mixture_K)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--quick", action="store_true", help="to see that it works")
    args = parser.parse_args()
    seeds, trials = (1, 6) if args.quick else (args.seeds, max(AFTER))
    jobs = [
        Job(args.folder, metric, method, seed, trials)
        for metric in METRICS
        for method in args.methods
        for seed in range(seeds)
    ]
    found: dict[tuple[str, str], list[Any]] = {}
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        for job, *result in pool.map(search, jobs):
            found.setdefault((job.metric, job.method), []).append(result)
    print(heading(("optuna", "scikit-learn", "numpy")))
    for metric in METRICS:
        print(f"\n{_report(args.folder, metric, found, args.methods)}")


def _report(
    folder: str, metric: str, found: Mapping[tuple[str, str], list[Any]], methods: list[str]
) -> str:
    truth = ground(folder, "small", metric)
    bar = truth.best_measured
    rows = []
    for method in methods:
        runs = found[metric, method]
        best = [np.minimum.accumulate(losses) for losses, *_ in runs]
        reached = [int(np.argmax(each <= bar)) + 1 for each in best if each[-1] <= bar]
        large = [rank_when_large(folder, metric, np.array(mixture)) for _, mixture, _ in runs]
        rows.append(
            [
                method,
                *(figure(float(np.mean([each[min(n, len(each)) - 1] for each in best])), 4)
                  for n in AFTER),
                f"{len(reached)} of {len(runs)}",
                str(int(np.median(reached))) if reached else "-",
                f"{np.mean(large):.1f} %",
                figure(float(np.mean([seconds for *_, seconds in runs]))),
            ]
        )  # fmt: skip
    text = (
        f"**{metric}**: the best of the {len(truth.loss_M)} mixtures has {bar:.4f}. On mixtures "
        f"that it had not seen the regression is off by {truth.error:.3f} (root mean square), and "
        f"ranks them with a correlation of {truth.ranks:.3f}."
    )
    head = ["method", *(f"best after {n}" for n in AFTER), "reached it", "trials until then"]
    return f"{text}\n\n{table([*head, 'better ones at 60M', 's a trial'], rows)}"


if __name__ == "__main__":
    main()
