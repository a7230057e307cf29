"""How many epochs a sweep needs to find a good network: searchers with early stopping.

`python benchmarks/fidelity_race.py [--quick] [--problems NAME ...]` prints Markdown; README.md says
what the figures mean. Every report is of a real training; only the clock is simulated.

Axes: S seeds, E epochs of a sweep.
"""

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from simulated import sweep
from small_networks import EPOCHS, METRICS, NAMES, SPACE, Params, samples_of, trained
from tables import figure, heading, table

from hposvc.events import Event, Ordered, Reported
from searchers import Space

Array = NDArray[np.float64]

SLOTS = 4
BUDGET = 30 * EPOCHS
AGAIN = 3  # new trainings of the best that a sweep found
RESAMPLES = 1000  # of the seeds, for the intervals
SIDES = (2.5, 97.5)  # percentiles
QUARTILES = (0.5, 0.25, 0.75)
SHOWN = (BUDGET // 8, BUDGET // 4, BUDGET // 2, BUDGET)  # epochs at which values are shown


@dataclass(frozen=True)
class Method:
    """A searcher and a scheduler, as a spec has them, and the step of the first rung."""

    search: str
    scheduler: Mapping[str, object]
    first: int = 1
    is_peer: bool = False


ASHA, PROMOTE = {"type": "asha", "mode": "stop"}, {"type": "asha", "mode": "promote"}
METHODS = {
    "random + ASHA": Method("random", ASHA, is_peer=True),
    "TPE + ASHA": Method("tpe", ASHA, is_peer=True),
    "BOHB": Method("tpe", {"type": "bohb"}, is_peer=True),
    "TPE + ASHA, promote, from 3": Method("tpe", PROMOTE, first=3, is_peer=True),
    "gp + ASHA": Method("gp", ASHA),
    "gp + ASHA, promote, from 3": Method("gp", PROMOTE, first=3),
    "gp + Hyperband": Method("gp", {"type": "hyperband"}),
    "gp": Method("gp", {"type": "fifo"}),
}
PROBLEMS = tuple(f"{name} {metric}" for name in NAMES for metric in METRICS)


@dataclass
class Training:
    """A training that goes on when its next epoch is asked for."""

    epochs: Iterator[dict[str, float]]
    known: list[dict[str, float]] = field(default_factory=list)

    def at(self, step: int) -> dict[str, float]:
        self.known += islice(self.epochs, max(0, step - len(self.known)))
        return self.known[step - 1]


TRAININGS: dict[tuple[object, ...], Training] = {}  # of this process, by configuration


def curve(params: Params, step: int) -> tuple[dict[str, float], float]:
    """What a simulated sweep calls: the metrics of an epoch, and its seconds.

    `params` holds, beside the configuration, the name of the data. A configuration has random
    numbers of its own, and takes .8 to 1.2 seconds an epoch.
    """
    key = tuple(sorted(params.items()))
    own = np.random.default_rng(int(1e9 * sum(_unit(params))))
    seed, seconds = int(own.integers(2**31)), 0.8 + 0.4 * own.random()
    if key not in TRAININGS:
        TRAININGS[key] = Training(trained(params, samples_of(params["data"]), seed))
    return TRAININGS[key].at(step), seconds


def _unit(params: Params) -> list[float]:
    own = {name: value for name, value in params.items() if name in SPACE}
    return Space.from_dict(SPACE).encode(own).tolist()


@dataclass(frozen=True)
class Run:
    """A sweep: the lowest value so far after each epoch, and its best training, done again."""

    lowest_E: Array
    again: float  # mean of new trainings at the step of the lowest value


def run(method: Method, problem: str, seed: int) -> Run:
    """Run one sweep, whose epochs count whichever trial trains them."""
    TRAININGS.clear()
    data, metric = problem.split()
    seconds = BUDGET // SLOTS + 30  # an epoch takes one, by and large
    events = sweep(
        {
            "metric": {"name": metric, "goal": "minimize"},
            "parameters": {"data": data, **SPACE},
            "fidelity": {"min": method.first, "max": EPOCHS},
            "search": {"method": method.search},
            "scheduler": dict(method.scheduler),
            "trials": {"parallel": SLOTS},
            "budget": {"wall": f"{seconds}s"},
            "seed": seed,
        },
        curve,
    )
    values, reports = _values(events, metric)
    best, step = reports[int(np.argmin(values))]
    again = [_trained_again(best, metric, step, seed) for seed in range(AGAIN)]
    return Run(np.minimum.accumulate(values), float(np.mean(again)))


def _values(events: Sequence[Event], metric: str) -> tuple[Array, list[tuple[Params, int]]]:
    """Return the value of each of BUDGET reports, and its configuration and step."""
    params: dict[int, Params] = {}  # by order
    values, reports = [], []
    for event in events:
        if isinstance(event, Ordered):
            params[event.order.id] = event.order.params
        elif isinstance(event, Reported):
            values.append(event.metrics[metric])
            reports.append((params[event.order], event.step))
    return np.nan_to_num(values[:BUDGET], nan=math.inf), reports


def _trained_again(params: Params, metric: str, step: int, seed: int) -> float:
    epochs = trained(params, samples_of(params["data"]), seed)
    return next(islice(epochs, step - 1, None))[metric]


Runs = Mapping[str, Array]  # lowest values of each method, (S, E)


def epochs_to(lowest_SE: Array, aim: float) -> float:
    """The first epoch at which the median over seeds is at the aim; infinite: it never is."""
    there_E = np.median(lowest_SE, axis=0) <= aim
    return float(there_E.argmax()) + 1.0 if there_E.any() else math.inf


def share(mine_SE: Array, peer_SE: Array) -> float:
    """Epochs until I am where the peer ends, as a share of those that it takes itself."""
    aim = float(np.median(peer_SE[:, -1]))
    return epochs_to(mine_SE, aim) / epochs_to(peer_SE, aim)


def worst_seed(mine_SE: Array, peer_SE: Array) -> str:
    """The share of my slowest seed alone, and how many seeds need more than the peer's median."""
    aim = float(np.median(peer_SE[:, -1]))
    share_S = np.array([epochs_to(lowest_E[None], aim) for lowest_E in mine_SE])
    share_S /= epochs_to(peer_SE, aim)
    return f"{_shown(share_S.max(), 2)} ({np.count_nonzero(share_S > 1.0)} above 1)"


def best_peer(runs: Runs) -> str:
    """The peer that ends with the lowest value."""
    peers = [name for name in runs if METHODS[name].is_peer]
    return min(peers, key=lambda name: float(np.median(runs[name][:, -1])))


def interval(mine_SE: Array, peer_SE: Array) -> str:
    """The share, and between what it lies in 95 % of resamples of the seeds."""
    rng = np.random.default_rng(0)
    drawn = [
        share(
            mine_SE[rng.integers(len(mine_SE), size=len(mine_SE))],
            peer_SE[rng.integers(len(peer_SE), size=len(peer_SE))],
        )
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(drawn, SIDES, method="nearest").tolist()
    return f"{_shown(share(mine_SE, peer_SE), 2)} ({_shown(low, 2)} – {_shown(high, 2)})"


def _shown(value: float, digits: int) -> str:
    return "never" if value == math.inf else figure(value, digits)


def rows(runs: Runs, again: Mapping[str, Array]) -> list[list[str]]:
    """A row of the table for each method; `again` has its best ones, trained again, by seed."""
    best = best_peer(runs)
    peers = [name for name in runs if METHODS[name].is_peer]
    found = []
    for name, lowest_SE in runs.items():
        median_E = np.median(lowest_SE, axis=0)
        aims = [float(np.median(runs[peer][:, -1])) for peer in peers]
        found.append(
            [
                f"{name} (the best peer)" if name == best else name,
                *(figure(median_E[epoch - 1], 4) for epoch in SHOWN),
                *(_shown(epochs_to(lowest_SE, aim), 0) for aim in aims),
                interval(lowest_SE, runs[best]),
                worst_seed(lowest_SE, runs[best]),
                "{} ({} – {})".format(*(figure(x, 4) for x in np.quantile(again[name], QUARTILES))),
            ]
        )
    return found


def show(problem: str, methods: Sequence[str], seeds: int, processes: int) -> None:
    """Run, and print a table."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {
            name: [pool.submit(run, METHODS[name], problem, seed) for seed in range(seeds)]
            for name in methods
        }
        runs = {name: [future.result() for future in some] for name, some in futures.items()}
    head = [
        f"{problem}, {seeds} seeds",
        *(f"lowest at {epoch}" for epoch in SHOWN),
        *(f"epochs to where {name} ends" for name in methods if METHODS[name].is_peer),
        "share of the best peer's",
        "worst seed",
        "best, trained again",
    ]
    lowest = {name: np.array([one.lowest_E for one in some]) for name, some in runs.items()}
    again = {name: np.array([one.again for one in some]) for name, some in runs.items()}
    print(table(head, rows(lowest, again)), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    print(heading())
    for problem in arguments.problems[:1] if arguments.quick else arguments.problems:
        seeds = 2 if arguments.quick else arguments.seeds
        show(problem, arguments.methods, seeds, arguments.processes)


if __name__ == "__main__":
    main()
