"""One searcher on one problem with one seed; a JSON line for each run, so that none is repeated."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peers import roster
from problems.problem import Problem


@dataclass(frozen=True)
class Run:
    """What a search found, evaluation by evaluation."""

    method: str
    problem: str
    seed: int
    parallel: int  # evaluations at the same time
    incumbent: Sequence[float]  # the true loss of the best that was told so far
    ask_ms: Sequence[float]  # CPU time of an ask and its tell

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.method, self.problem, self.seed, self.parallel


def search(method: str, problem: Problem, seed: int, parallel: int, budget: int) -> Run:
    """Evaluate `budget` configurations, of which `parallel` are pending at any time.

    Which of the pending ones ends next is drawn at random. With noise, what counts is the true
    loss of the configuration that looks best.
    """
    rng = np.random.default_rng([seed, parallel])
    method_in_progress = roster.start(method, problem.space, seed, budget)
    pending: list[tuple[Any, float, float]] = []
    true: list[float] = []
    told: list[float] = []
    ask_ms: list[float] = []
    while len(true) < budget:
        while len(pending) < min(parallel, budget - len(true)):
            began = time.process_time()
            params, asked = method_in_progress.ask()
            pending.append((asked, problem.loss(params), time.process_time() - began))
        asked, loss, seconds = pending.pop(rng.integers(len(pending)))
        true.append(loss)
        told.append(loss + problem.noise * rng.normal())
        began = time.process_time()
        method_in_progress.tell(asked, told[-1])
        ask_ms.append(1e3 * (seconds + time.process_time() - began))
    best = [true[int(np.argmin(told[: count + 1]))] for count in range(budget)]
    return Run(method, problem.name, seed, parallel, best, np.round(ask_ms, 2).tolist())


def folder() -> Path:
    """Where runs are kept unless the command says another place."""
    top = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return top / "hposvc-benchmarks" / "searchers"


def keep(run: Run, results: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    name = run.method.replace(":", "+").replace("/", "_")
    with (results / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def kept(results: Path) -> Iterator[Run]:
    """Every run; of the same one with two budgets, both."""
    for path in sorted(results.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield Run(**json.loads(line))
