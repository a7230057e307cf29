"""Epochs to a good network on public learning curves: searchers with early stopping on LCBench.

`python benchmarks/public_curves.py [--quick] [--table]` prints Markdown; README.md says what the
figures mean. The curves are YAHPO's model of LCBench (see problems/public.py).
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import runs
from numpy.typing import NDArray
from problems import public
from simulated import sweep
from tables import figure, heading, table

from hposvc.events import Reported

Array = NDArray[np.float64]

SLOTS = 4
LAST = 27  # the highest step, in epochs
EPOCHS = 300  # of a rival's sweep
LONGEST = 2 * EPOCHS  # of ours; whoever has not found it by then never does
TASKS = public.TASKS[:8]
METRICS = {"error": public.ACCURACY, "cross-entropy": 2}  # places among the model's outputs
STOP = {"type": "asha", "mode": "stop"}


@dataclass(frozen=True)
class Method:
    """A searcher and a scheduler, as a spec has them, and the step of the first rung."""

    search: Mapping[str, object]
    scheduler: Mapping[str, object]
    first: int | None = 1  # None: left to the scheduler
    is_peer: bool = False


METHODS = {
    "random + ASHA": Method({"method": "random"}, STOP, is_peer=True),
    "TPE + ASHA": Method({"method": "tpe"}, STOP, is_peer=True),
    "BOHB": Method({"method": "tpe"}, {"type": "bohb"}, is_peer=True),
    "gp + ASHA": Method({"method": "gp"}, {"type": "asha"}, first=None),
    "gp + ASHA, stop, from 1": Method({"method": "gp"}, STOP),
}
PEERS = [name for name, method in METHODS.items() if method.is_peer]


def curve(params: Mapping[str, Any], step: int) -> tuple[dict[str, float], float]:
    """What a simulated sweep calls: the loss after an epoch, and the epoch's seconds."""
    task, metric = params["task"].split()
    accuracy_or_loss = public.Task(task).outputs({**params, "epoch": step})[METRICS[metric]]
    return {"loss": 100.0 - accuracy_or_loss if metric == "error" else accuracy_or_loss}, 1.0


def run(method: Method, task: str, metric: str, seed: int) -> list[float]:
    """The loss of each report of a sweep, whichever trial made it."""
    epochs = EPOCHS if method.is_peer else LONGEST
    events = sweep(
        {
            "metric": {"name": "loss", "goal": "minimize", "select": "best"},
            "parameters": {"task": f"{task} {metric}", **public.lcbench_space().to_dict()},
            "fidelity": {"min": method.first, "max": LAST},
            "search": dict(method.search),
            "scheduler": dict(method.scheduler),
            "trials": {"parallel": SLOTS},
            "budget": {"wall": f"{epochs // SLOTS + LAST}s"},
            "seed": seed,
        },
        curve,
    )
    return [event.metrics["loss"] for event in events if isinstance(event, Reported)][:epochs]


@dataclass(frozen=True)
class Sweeps:
    """What all sweeps of a metric reported, by method, task and seed."""

    losses: Mapping[tuple[str, str, int], Sequence[float]]

    def lowest(self, name: str, task: str, seed: int) -> Array:
        values = np.array(self.losses[name, task, seed], dtype=float)
        return np.minimum.accumulate(np.nan_to_num(values, nan=np.inf))

    def share(self, name: str, rivals: Sequence[str], task: str, seed: int) -> float:
        """Epochs until it is where the best of the rivals ends, by EPOCHS; 2: it never is."""
        aim = min(float(self.lowest(rival, task, seed)[EPOCHS - 1]) for rival in rivals)
        there = self.lowest(name, task, seed) <= aim
        return (int(there.argmax()) + 1) / EPOCHS if there.any() else LONGEST / EPOCHS

    def over(self, name: str, rivals: Sequence[str]) -> list[float]:
        """The share of each run that the rivals have too."""
        return [
            self.share(name, rivals, task, seed)
            for task, seed in self.runs(name)
            if name not in rivals and all((rival, task, seed) in self.losses for rival in rivals)
        ]

    def of_medians(self, name: str) -> float:
        """For each task, epochs until the median over seeds is where the lowest of the peers'
        medians ends, as a share of EPOCHS; the median over tasks.
        """
        shares = []
        for task in {task for task, _ in self.runs(name)}:
            mine_E, *peers = (self._median(one, task) for one in (name, *PEERS))
            there = mine_E <= min(peer_E[EPOCHS - 1] for peer_E in peers)
            shares.append((int(there.argmax()) + 1 if there.any() else LONGEST) / EPOCHS)
        return float(np.median(shares))

    def _median(self, name: str, task: str) -> Array:
        seeds = [seed for one, seed in self.runs(name) if one == task]
        median_E: Array = np.median([self.lowest(name, task, seed) for seed in seeds], axis=0)
        return median_E

    def runs(self, name: str) -> list[tuple[str, int]]:
        return sorted((task, seed) for method, task, seed in self.losses if method == name)


def told(shares: Sequence[float]) -> list[str]:
    """Median, quartiles, and how many are above 1 and never."""
    if not shares:
        return ["–"] * 3
    quartiles = " – ".join(figure(x) for x in np.quantile(shares, [0.25, 0.75]))
    above = sum(share > 1 for share in shares) / len(shares)
    never = sum(share >= LONGEST / EPOCHS for share in shares) / len(shares)
    return [f"{figure(float(np.median(shares)))} ({quartiles})", f"{above:.0%}", f"{never:.0%}"]


def report(sweeps: Sweeps, metric: str) -> str:
    """A row for each method: its shares of each peer's epochs, and of the best of the three."""
    names = [name for name in METHODS if sweeps.runs(name)]
    rows = []
    for name in names:
        single = [told(sweeps.over(name, [peer]))[0] for peer in PEERS]
        medians = "–" if name in PEERS else figure(sweeps.of_medians(name))
        best = told(sweeps.over(name, PEERS))
        rows.append([name, str(len(sweeps.runs(name))), *single, *best, medians])
    head = [metric, "sweeps", *PEERS, "the best of the three", "above 1", "never", "of medians"]
    return table(head, rows)


def kept(results: Path, metric: str) -> Sweeps:
    """All sweeps of a metric that were run."""
    file = results / f"{metric}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return Sweeps({(one["method"], one["task"], one["seed"]): one["losses"] for one in lines})


def race(names: Sequence[str], args: argparse.Namespace) -> None:
    """Make the sweeps that are not there yet; every seed of all before the next seed."""
    args.results.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        futures = {}
        for metric in args.metrics:
            done = kept(args.results, metric).losses
            for seed in range(args.seeds):
                for task in args.tasks:
                    for name in names:
                        if (name, task, seed) not in done:
                            job = pool.submit(run, METHODS[name], task, metric, seed)
                            futures[job] = (name, task, metric, seed)
        for job in as_completed(futures):
            name, task, metric, seed = futures[job]
            line = {"method": name, "task": task, "seed": seed, "losses": job.result()}
            with (args.results / f"{metric}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--table", action="store_true", help="only print what was run before")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=list(METRICS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    results = runs.folder().parent / "public_curves"
    parser.add_argument("--results", type=Path, default=results, help="where sweeps are kept")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that are started
    if args.quick:
        args.seeds, args.tasks = 1, args.tasks[:1]
    if not args.table:
        race(args.methods, args)
    print(heading(("optuna", "onnxruntime")))
    for metric in args.metrics:
        print(report(kept(args.results, metric), metric))


if __name__ == "__main__":
    main()
