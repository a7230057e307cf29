"""What an earlier sweep on other data is worth to `gp`, and what a misleading one costs.

`python benchmarks/transfer.py [--sources other mirrored] [--seeds 10]` prints Markdown. A
first sweep of 50 trials tunes a model on one data set; a second one tunes the same model on
another, cold and with the first one's trials. The problems are the tuning problems of
`searchers.py` whose model has two data sets, in both directions.

- `other`: the first sweep as it is.
- `same`: a first sweep on the same data, with another seed.
- `mirrored`: its configurations with every scale turned round and the choices rotated.
- `negated`: its losses times -1, so that what was best looks worst.
- `both`: the first sweep, and a mirrored one of another seed.

The learned prior is made anew without the second problem's data (`prior/judge.py`).
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from multiprocessing import Pool
from unittest.mock import patch

import numpy as np
import tables as markdown
from prior.judge import learned_for
from problems.catalogue import OWN, PROBLEMS
from problems.problem import Array, Params
from standings import ratios, regret
from threadpoolctl import threadpool_limits

from searchers import Choice, Space
from searchers.gp.learned import prior
from searchers.gp.searcher import GaussianProcess
from searchers.optimizer import Optimizer
from searchers.searcher import Observation
from searchers.warm_start import warm_started

PAIRS = (
    ("boosting_diabetes", "boosting_fair"),
    ("forest_wine", "forest_fair"),
    ("perceptron_digits", "perceptron_diabetes"),
    ("svm_digits", "svm_diabetes"),
)
TRANSFERS = PAIRS + tuple((second, first) for first, second in PAIRS)
SOURCES = ("other", "same", "mirrored", "negated", "both")
FIRST = 50  # trials of the first sweep
AT = (5, 10, 20, 30)
WORST = 3.0  # regret that counts, at most
SEED = 1000  # of the first sweep, beyond that of the second

Job = tuple[str, str, int]  # the two problems and the seed


def search(problem: str, seed: int, trials: int, earlier: Sequence[Observation]) -> Optimizer:
    """Return a search after its last trial; each trial is told before the next is asked for."""
    searcher = warm_started(GaussianProcess(), earlier)
    optimizer = Optimizer(searcher, PROBLEMS[problem].space, seed=seed)
    for _ in range(trials):
        trial = optimizer.ask()
        optimizer.tell(trial, PROBLEMS[problem].loss(trial.params))
    return optimizer


@cache
def first_sweep(problem: str, seed: int, second: str) -> tuple[Observation, ...]:
    """Return the trials of a sweep, as another sweep would get them.

    Args:
        second: the problem without whose data the prior of both was learned.
    """
    history = search(problem, SEED + seed, FIRST, ()).history
    return tuple(replace(seen, id=f"{problem}-{seed}/{seen.id}", note={}) for seen in history)


def earlier_trials(source: str, problem: str, seed: int, second: str) -> tuple[Observation, ...]:
    """Return the trials that the second sweep learns from."""
    space = PROBLEMS[problem].space
    trials = first_sweep(problem, seed, second)
    if source == "same":
        return first_sweep(second, seed, second)
    if source == "mirrored":
        return tuple(replace(seen, params=mirrored(space, seen.params)) for seen in trials)
    if source == "negated":
        return tuple(replace(seen, loss=-(seen.loss or 0.0)) for seen in trials)
    if source == "both":
        return trials + earlier_trials("mirrored", problem, seed + SEED, second)
    return trials


def mirrored(space: Space, params: Params) -> Params:
    """Return the configuration on turned scales and with the next choice of each."""

    def turned(name: str) -> object:
        domain = space[name]
        if name not in params:
            return domain.from_unit(0.5)
        unit = domain.to_unit(params[name])
        if isinstance(domain, Choice) and not domain.ordered:
            return domain.from_unit((unit + 1.0 / domain.count) % 1.0)
        return domain.from_unit(1.0 - unit)

    return space.build(turned)


def run(job: tuple[Job, str]) -> tuple[Job, str, list[float]]:
    """Return the regret of one search after each trial; the source `cold` is none."""
    (first, second, seed), source = job
    learned = learned_for(second, "data")
    with threadpool_limits(1), patch.object(prior, "load", lambda: learned):
        earlier = () if source == "cold" else earlier_trials(source, first, seed, second)
        history = search(second, seed, max(AT), earlier).history
    lowest = np.minimum.accumulate([seen.loss for seen in history])
    known = OWN.references[second]
    return job[0], source, [min(regret(float(loss), known), WORST) for loss in lowest]


def report(regrets: Mapping[tuple[Job, str], Sequence[float]]) -> str:
    """Return the regrets cold and with each source, and their ratio with a 95 % interval.

    The last column is the first trial after which the mean regret is that of cold at the end.
    """
    jobs = sorted({job for job, _ in regrets})
    at_A = np.array(AT) - 1
    cold_JT = np.array([regrets[job, "cold"] for job in jobs])
    end = cold_JT[:, -1].mean()
    rows = [["cold", *(f"{mean:.3f}" for mean in cold_JT[:, at_A].mean(axis=0)), str(max(AT))]]
    for source in dict.fromkeys(source for _, source in regrets if source != "cold"):
        warm_JT = np.array([regrets[job, source] for job in jobs])
        cells = _cells(cold_JT[:, at_A], warm_JT[:, at_A], jobs)
        rows.append([source, *cells, _first_at(warm_JT.mean(axis=0), end)])
    regret_heads = (f"regret at {at}" for at in AT)
    return str(markdown.table(["earlier sweep", *regret_heads, "trials to where cold ends"], rows))


def _first_at(mean_T: Array, aim: float) -> str:
    there_T = mean_T <= aim
    return str(int(there_T.argmax()) + 1) if there_T.any() else f"over {len(mean_T)}"


def _cells(cold_JA: Array, warm_JA: Array, jobs: Sequence[Job]) -> list[str]:
    pairs = [(f"{first} {second}", seed) for first, second, seed in jobs]
    changes = zip(warm_JA.mean(axis=0), ratios(cold_JA, warm_JA, pairs), strict=True)
    return [f"{mean:.3f}: {ratio}" for mean, ratio in changes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    jobs = [
        ((*pair, args.first_seed + seed), source)
        for pair in TRANSFERS
        for seed in range(args.seeds)
        for source in ("cold", *args.sources)
    ]
    regrets = {}
    with Pool(args.processes) as pool:
        for job, source, found in pool.imap(run, jobs, chunksize=1 + len(args.sources)):
            regrets[job, source] = found
    print(markdown.heading(("numpy", "scipy")))
    print(report(regrets))


if __name__ == "__main__":
    main()
