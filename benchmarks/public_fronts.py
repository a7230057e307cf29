"""Epochs to a good front on public learning curves: two metrics, with and without early stopping.

`python benchmarks/public_fronts.py [--quick]` prints Markdown. The curves are YAHPO's model of
LCBench (see problems/public.py): the error after each epoch, and how many weights the network has.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log10
from multiprocessing import get_context
from typing import Any

import numpy as np
from moocore import hypervolume
from numpy.typing import NDArray
from problems import public
from simulated import sweep
from tables import figure, heading, table

from hposvc.events import Reported

SLOTS = 4
LAST = 27  # the highest step, in epochs
EPOCHS = 540  # of a sweep: 20 trials of full length
LONGEST = 2 * EPOCHS  # whoever has no such front by then never has
TASKS = public.TASKS[:8]
WORST = (100.0, 7.5)  # of error in percent, and of the decimal logarithm of weights


@dataclass(frozen=True)
class Method:
    """A searcher and a scheduler, as a spec has them."""

    search: str
    scheduler: Mapping[str, object]


FIFO, ASHA, PROMOTE = (
    {"type": "fifo"},
    {"type": "asha", "mode": "stop"},
    {"type": "asha", "mode": "promote"},
)
METHODS = {
    "random": Method("random", FIFO),
    "NSGA-II": Method("nsga2", FIFO),
    "TPE": Method("tpe", FIFO),
    "gp": Method("gp", FIFO),
    "TPE + ASHA": Method("tpe", ASHA),
    "gp + ASHA": Method("gp", ASHA),
    "gp + ASHA, promote": Method("gp", PROMOTE),
}
WHOLE = [name for name, method in METHODS.items() if method.scheduler is FIFO]


def curve(params: Mapping[str, Any], step: int) -> tuple[dict[str, float], float]:
    """Return what a simulated sweep calls: both metrics after an epoch, and its seconds."""
    accuracy = public.Task(params["task"]).outputs({**params, "epoch": step})[public.ACCURACY]
    weights = params["num_layers"] * params["max_units"] ** 2
    return {"error": 100.0 - accuracy, "weights": log10(weights)}, 1.0


def volumes(name: str, task: str, seed: int) -> NDArray[np.float64]:
    """Return the volume that the front dominates after each epoch of a sweep, of all reports."""
    method = METHODS[name]
    events = sweep(
        {
            "metrics": [{"name": each, "goal": "minimize"} for each in ("error", "weights")],
            "parameters": {"task": task, **public.lcbench_space().to_dict()},
            "fidelity": {"min": 1, "max": LAST},
            "search": {"method": method.search},
            "scheduler": dict(method.scheduler),
            "trials": {"parallel": SLOTS},
            "budget": {"wall": f"{LONGEST // SLOTS + LAST}s"},
            "seed": seed,
        },
        curve,
    )
    points = np.array(
        [(e.metrics["error"], e.metrics["weights"]) for e in events if isinstance(e, Reported)]
    )[:LONGEST]
    return np.array([hypervolume(points[: n + 1], ref=WORST) for n in range(len(points))])


def epochs_to(volume_E: NDArray[np.float64], aim: float) -> float:
    """Return the epochs until a volume is reached, by EPOCHS; 2: it never is."""
    reached = volume_E >= aim
    return (int(reached.argmax()) + 1 if reached.any() else LONGEST) / EPOCHS


def rows(volume: Mapping[tuple[str, str, int], NDArray[np.float64]]) -> list[list[str]]:
    """Return a row for each method: shares of the epochs of each one without early stopping."""
    lines = []
    runs = sorted({(task, seed) for _, task, seed in volume})
    for name in METHODS:
        cells = []
        for rival in WHOLE:
            shares = [
                epochs_to(volume[name, *run], float(volume[rival, *run][EPOCHS - 1]))
                for run in runs
            ]
            low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75])
            cells.append(f"{figure(middle)} ({figure(low)} – {figure(high)})")
        ends = [float(volume[name, *run][EPOCHS - 1]) for run in runs]
        lines.append([name, *cells, figure(float(np.median(ends)))])
    return lines


def main() -> None:
    """Run all sweeps and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    tasks: Sequence[str] = TASKS[:1] if args.quick else TASKS
    seeds = range(1 if args.quick else args.seeds)
    runs = [(name, task, seed) for seed in seeds for task in tasks for name in METHODS]
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        volume = dict(zip(runs, pool.map(_volumes_of, runs), strict=True))
    print(heading(("optuna", "moocore", "onnxruntime")))
    head = ["searcher", *(f"of {rival}'s epochs" for rival in WHOLE), "volume at the end"]
    print(table(head, rows(volume)))


def _volumes_of(run: tuple[str, str, int]) -> NDArray[np.float64]:
    return volumes(*run)


if __name__ == "__main__":
    main()
