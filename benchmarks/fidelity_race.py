"""How many epochs a sweep needs to find a good configuration: searchers with early stopping.

`python benchmarks/fidelity_race.py [--quick] [--problems NAME ...]` prints Markdown; README.md says
what the figures mean.
"""

import argparse
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from learning_curves import (
    EPOCHS,
    METRICS,
    NAMES,
    SPACE,
    Array,
    curve,
    file_of,
    optimum,
    true_curve,
)
from simulated import sweep
from tables import figure, heading, table

from hposvc.events import Event, Ordered, Reported

SLOTS = 4
BUDGET = 30 * EPOCHS
RESAMPLES = 1000  # of the seeds, for the intervals
SIDES = (2.5, 97.5)  # percentiles
SHOWN = (BUDGET // 8, BUDGET // 4, BUDGET // 2, BUDGET)  # epochs at which regrets are shown


@dataclass(frozen=True)
class Method:
    """A searcher and a scheduler, as a spec has them."""

    search: str
    scheduler: Mapping[str, object]
    is_peer: bool = False


METHODS = {
    "random + ASHA": Method("random", {"type": "asha"}, is_peer=True),
    "TPE + ASHA": Method("tpe", {"type": "asha"}, is_peer=True),
    "BOHB": Method("tpe", {"type": "bohb"}, is_peer=True),
    "gp + ASHA": Method("gp", {"type": "asha"}),
    "gp + Hyperband": Method("gp", {"type": "hyperband"}),
    "gp": Method("gp", {"type": "fifo"}),
}
PROBLEMS = tuple(f"{name} {metric}" for name in NAMES for metric in METRICS)


def run(method: Method, problem: str, seed: int) -> Array:
    """The regret of one simulated sweep after each of its epochs, whichever trial trained it.

    Regret is the lowest true value of any report so far, less the lowest that the problem has.
    """
    family, metric = problem.split()
    events = sweep(
        {
            "metric": {"name": metric, "goal": "minimize"},
            "parameters": {"family": family, **SPACE},
            "fidelity": {"max": EPOCHS},
            "search": {"method": method.search},
            "scheduler": dict(method.scheduler),
            "trials": {"parallel": SLOTS},
            "budget": {"wall": f"{BUDGET // SLOTS + 30}s"},  # an epoch takes a second, by and large
            "seed": seed,
        },
        curve,
    )
    seen = list(true_values(events, metric))
    return np.minimum.accumulate(seen)[:BUDGET] - optimum(family, metric)


def true_values(events: Iterable[Event], metric: str) -> Iterator[float]:
    """The metric without roughness of each report, in the order of the simulated clock."""
    known: dict[int, Array] = {}  # by order
    for event in events:
        if isinstance(event, Ordered):
            known[event.order.id] = true_curve(event.order.params, metric)
        elif isinstance(event, Reported):
            yield float(known[event.order][event.step - 1])


Runs = Mapping[str, Array]  # regrets of each method, seeds by epochs


def epochs_to(regret_SE: Array, aim: float) -> float:
    """The first epoch at which the median over seeds is at the aim; infinite: it never is."""
    there_E = np.median(regret_SE, axis=0) <= aim
    return float(there_E.argmax()) + 1.0 if there_E.any() else math.inf


def share(mine_SE: Array, peer_SE: Array) -> float:
    """Epochs until I am where the peer ends, as a share of those that it takes itself."""
    aim = float(np.median(peer_SE[:, -1]))
    return epochs_to(mine_SE, aim) / epochs_to(peer_SE, aim)


def worst_seed(mine_SE: Array, peer_SE: Array) -> str:
    """The share of my slowest seed alone, and how many seeds need more than the peer's median."""
    aim = float(np.median(peer_SE[:, -1]))
    share_S = np.array([epochs_to(regret_E[None], aim) for regret_E in mine_SE])
    share_S /= epochs_to(peer_SE, aim)
    return f"{_shown(share_S.max(), 2)} ({np.count_nonzero(share_S > 1.0)} above 1)"


def best_peer(runs: Runs) -> str:
    """The peer that ends with the lowest regret."""
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


def rows(runs: Runs) -> list[list[str]]:
    """A row of the table for each method."""
    best = best_peer(runs)
    peers = [name for name in runs if METHODS[name].is_peer]
    found = []
    for name, regret_SE in runs.items():
        median_E = np.median(regret_SE, axis=0)
        aims = [float(np.median(runs[peer][:, -1])) for peer in peers]
        found.append(
            [
                f"{name} (the best peer)" if name == best else name,
                *(figure(median_E[epoch - 1], 4) for epoch in SHOWN),
                *(_shown(epochs_to(regret_SE, aim), 0) for aim in aims),
                interval(regret_SE, runs[best]),
                worst_seed(regret_SE, runs[best]),
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
        runs = {
            name: np.array([future.result() for future in some]) for name, some in futures.items()
        }
    head = [
        f"{problem}, {seeds} seeds",
        *(f"regret at {epoch}" for epoch in SHOWN),
        *(f"epochs to where {name} ends" for name in methods if METHODS[name].is_peer),
        "share of the best peer's",
        "worst seed",
    ]
    print(table(head, rows(runs)), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    recorded = [problem for problem in PROBLEMS if file_of(problem.split()[0]).exists()]
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=recorded)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    print(heading())
    for problem in arguments.problems[:1] if arguments.quick else arguments.problems:
        seeds = 2 if arguments.quick else arguments.seeds
        show(problem, arguments.methods, seeds, arguments.processes)


if __name__ == "__main__":
    main()
