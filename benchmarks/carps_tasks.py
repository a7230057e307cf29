"""Our `gp` beside optimizers of CARP-S, run and logged by CARP-S on its own selections of tasks.

`python benchmarks/carps_tasks.py [--seeds 3] [--table]` prints Markdown; README.md says what the
figures mean.

Source: Benjamins et al., carps: A Framework for Comparing N Hyperparameter Optimizers on M
Benchmarks (2025).
"""

import os

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy reads it when it is imported

import argparse
import contextlib
import io
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import carps
import hydra
import numpy as np
import runs
import standings
import tables
from carps.utils.running import optimize
from numpy.typing import NDArray
from scipy.stats import rankdata

from searchers.pareto import hypervolume

CONFIGS = Path(carps.__file__).parent / "configs"
OURS = "{_target_: peers.carps_optimizer.Hposvc, _partial_: true, method: gp}"
FILES = "{_target_: carps.loggers.file_logger.FileLogger, _partial_: true, overwrite: true}"
# By kind of tasks, what starts each optimizer. CARP-S has some tasks that need no download.
OPTIMIZERS = {
    "blackbox": {
        "hposvc": [f"+optimizer={OURS}"],
        "random": ["+optimizer/randomsearch=config"],
        "optuna_tpe": ["+optimizer/optuna=SO_TPE"],
        "nevergrad_cmaes": ["+optimizer/nevergrad=cmaes"],
    },
    "multiobjective": {
        "hposvc": [f"+optimizer={OURS}"],
        "random": ["+optimizer/randomsearch=config"],
        "optuna_tpe": ["+optimizer/optuna=MO_TPE"],
        "optuna_nsga2": ["+optimizer/optuna=MO_NSGAII"],
    },
}
LOCAL = ("subset_bbob_*.yaml", "subset_Pymoo_*.yaml")
MOST_OBJECTIVES = 4  # that ours take
PACKAGES = ("carps", "ioh", "pymoo", "optuna", "nevergrad", "numpy")
Array = NDArray[np.float64]


def main() -> None:
    args = _parser().parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if not args.table:
        for kind, optimizers in OPTIMIZERS.items():
            for seed in range(1, args.seeds + 1):
                for task in tasks(kind):
                    for optimizer in optimizers:
                        run(kind, optimizer, task, seed, args.results)
    print(tables.heading(PACKAGES))
    for kind in OPTIMIZERS:
        print(table(kind, args.seeds, args.results))


def tasks(kind: str) -> list[str]:
    """Return the local tasks of a selection, those for development and those for tests."""
    folder = CONFIGS / "task" / "subselection" / kind
    paths = sorted(path for pattern in LOCAL for path in folder.rglob(pattern))
    return [str(path.relative_to(folder).with_suffix("")) for path in paths if _is_ours(path)]


def run(kind: str, optimizer: str, task: str, seed: int, results: Path) -> None:
    """Let CARP-S run and log an optimizer on a task, unless it has done so before."""
    folder = _folder(optimizer, task, seed, results)
    if (folder / "done").exists():
        return
    part, _, name = task.partition("/")
    with hydra.initialize_config_module("carps.configs", version_base=None):
        config = hydra.compose(
            "base",
            [
                f"+task/subselection/{kind}/{part}={name}",
                *(f"{key}={optimizer}" for key in ("optimizer_id", "optimizer_container_id")),
                *OPTIMIZERS[kind][optimizer],
                f"seed={seed}",
                f"loggers=[{FILES}]",
                f"outdir={folder}",
            ],
        )
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()):  # it shows all that it has
        optimize(config)
    (folder / "done").touch()
    print(f"{optimizer} {task} {seed}: {time.perf_counter() - began:.1f} s", file=sys.stderr)


def table(kind: str, seeds: int, results: Path) -> str:
    """Return mean ranks, and `hposvc` against each, over tasks and seeds."""
    pairs = [(task, seed) for task in tasks(kind) for seed in range(1, seeds + 1)]
    losses_PM = np.array([_losses(kind, task, seed, results) for task, seed in pairs])
    ranks_PM: Array = rankdata(losses_PM, axis=1)
    low_M, high_M = standings.interval(ranks_PM, pairs)
    rows = []
    for place, optimizer in enumerate(OPTIMIZERS[kind]):
        rank = f"{ranks_PM[:, place].mean():.2f} ({low_M[place]:.2f} – {high_M[place]:.2f})"
        won = int((losses_PM[:, 0] < losses_PM[:, place]).sum())
        lost = int((losses_PM[:, 0] > losses_PM[:, place]).sum())
        rows.append([optimizer, rank, f"{won}–{lost}" if place else "–"])
    title = f"{kind}: {len(tasks(kind))} tasks, {seeds} seeds."
    return f"{title}\n\n" + tables.table(["optimizer", "rank (95 %)", "hposvc won–lost"], rows)


def _losses(kind: str, task: str, seed: int, results: Path) -> list[float]:
    """Return what each optimizer came to: the lowest cost, or the negative hypervolume."""
    costs = [
        np.array(list(_costs(_folder(optimizer, task, seed, results))))
        for optimizer in OPTIMIZERS[kind]
    ]
    if costs[0].ndim == 1:
        return [float(one.min()) for one in costs]
    worst, best = np.vstack(costs).max(axis=0), np.vstack(costs).min(axis=0)
    scaled = [(one - best) / np.where(worst > best, worst - best, 1.0) for one in costs]
    return [-hypervolume(one.tolist(), np.ones(len(worst))) for one in scaled]


def _costs(folder: Path) -> Iterator[float | Sequence[float]]:
    for line in (folder / "trial_logs.jsonl").read_text().splitlines():
        yield json.loads(line)["trial_value"]["cost"]


def _folder(optimizer: str, task: str, seed: int, results: Path) -> Path:
    return results / optimizer / task / str(seed)


def _is_ours(path: Path) -> bool:
    """Whether ours take as many objectives as a task has."""
    (line,) = (line for line in path.read_text().splitlines() if "n_objectives:" in line)
    return int(line.partition(":")[2]) <= MOST_OBJECTIVES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="carps_tasks.py", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="only print what was run before")
    parser.add_argument("--results", type=Path, default=runs.folder().parent / "carps")
    return parser


if __name__ == "__main__":
    main()
