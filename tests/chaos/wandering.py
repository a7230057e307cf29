"""A trainable, and a searcher, of which all is known beforehand: what they report, and do wrong.

Two ranks agree on each step. The loss is a function of the learning rate and the step alone, a
checkpoint is the account of how it was trained, and each rank 0 keeps a diary of its own, outside
of all that the service writes. What goes wrong is armed from outside, by a file, and strikes one
step of one trial; that step again if it is done again.
"""

import json
import math
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from numpy.random import Generator

from searchers.gp.searcher import GaussianProcess
from searchers.searcher import Observation, Proposal
from searchers.space import Space

STEP_S = 0.15  # how long a step trains
SLOW_START_S = 9.0  # how long the module `slow` takes to import
LEAK_S = 3600  # how long a process that was left behind would live
MOOD = "this searcher is in a bad mood"


def loss(lr: float, step: int) -> float:
    """What is reported of a step that was trained with this rate."""
    return abs(math.log10(lr) + 2) + 1 / step


def account(trial: str, step: int, lr: float) -> str:
    """The line of a checkpoint that says how a step was trained."""
    return f"{trial} {step} {lr!r}"


def strikes(place: Path, misfortune: str, where: str) -> bool:
    """Whether an armed misfortune is to happen here: it does where it was first asked for."""
    if not (place / f"{misfortune}.armed").exists():
        return False
    struck = place / f"{misfortune}.at"
    with suppress(FileExistsError), struck.open("x") as file:
        file.write(where)
    return struck.read_text() == where


def wander(params, worker):
    """Trains; rank 0 may lose its way, as `strikes` says."""
    place, lr = Path(params["round"]), params["lr"]
    before = worker.restore()
    lines = (before / "account").read_text().splitlines() if before else []
    diary = Diary(place, worker) if worker.rank == 0 else None
    for step in worker.steps():
        if diary:
            diary.write("begun", step)
        agree(worker, step)
        time.sleep(STEP_S)
        value = loss(lr, step)
        if worker.rank == 0:
            value = suffer(place, f"{worker.trial} {step}", value)
        lines.append(account(worker.trial, step, lr))
        folder = worker.scratch()
        (folder / "account").write_text("\n".join(lines))
        worker.report(step, {"loss": value}, checkpoint=folder)
        if diary:
            diary.write("heard", step)


def agree(worker, step: int) -> None:
    """See that all ranks are at the same step."""
    import torch
    import torch.distributed as dist

    total = torch.tensor(step)
    dist.all_reduce(total)
    assert total.item() == step * worker.world_size


def suffer(place: Path, where: str, value: float) -> float:
    """What is reported in place of a value, if something is to go wrong here."""
    if strikes(place, "leak", where):
        sleep = ["sleep", str(LEAK_S)]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
    if strikes(place, "daemon", where):
        subprocess.run(["sh", "-c", f"setsid sleep {LEAK_S} >/dev/null 2>&1 &"], check=True)
    if strikes(place, "oom", where):
        raise MemoryError("as much as this was never there")
    if strikes(place, "interrupt", where):
        raise KeyboardInterrupt
    return math.nan if strikes(place, "nan", where) else value


@dataclass(frozen=True)
class Diary:
    """What rank 0 of an order says that it did, a line at a time; a kill loses no line."""

    place: Path
    worker: object = field(repr=False)

    def write(self, what: str, step: int) -> None:
        """`begun` before a step, `heard` when its report has come back."""
        entry = {"what": what, "step": step, "time": time.monotonic(), "pid": os.getpid()}
        entry |= {"trial": self.worker.trial, "order": self.worker.order}
        with (self.place / f"diary-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")


@dataclass(frozen=True)
class Moody:
    """The Gaussian process, which raises once, when that was armed."""

    place: str
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        place = Path(self.place)
        if (place / "searcher.armed").exists() and not (place / "searcher.at").exists():
            (place / "searcher.at").touch()
            raise RuntimeError(MOOD)
        return GaussianProcess().suggest(space, history, n, rng)
