"""Worker: all that one rank of a trial needs to know of the world. Without torch until asked.

A trainable restores, steps, and reports; the link carries a report out and brings the decision
back. Who is at the other end (Ray actors, a debugger, a test) does not matter here.
"""

import math
import numbers
import operator
import posixpath
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainables import checkpoint as checkpoints
from trainables.checkpoint import SCRATCH, CheckpointDamaged, Saved
from trainables.training import Training

if TYPE_CHECKING:
    import torch

__all__ = [
    "CheckpointDamaged",
    "Link",
    "LocalLink",
    "Params",
    "Report",
    "ReportError",
    "Saved",
    "StopTrial",
    "Worker",
]

Params = Mapping[str, float | int | str | bool | None]  # user units, always

MOST_METRICS = 1_000  # MLflow takes no more in one batch
LONGEST_NAME = 250  # MLflow's limit for a metric's name
NAME = re.compile(r"[\w\-. /:]+")  # MLflow's alphabet


class StopTrial(BaseException):
    """The controller ends this order; let it pass, so that the rank is free for the next."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ReportError(ValueError):
    """A report that breaks the rules; the message names trial, rank and what is allowed."""


class Report(NamedTuple):
    """What one call of `Worker.report` sent."""

    step: int
    metrics: dict[str, float]
    checkpoint: Saved | None


class Link(Protocol):
    """How a report travels from a rank to whoever decides."""

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        """Deliver a report, waiting for a decision where one is due. False: stop now."""
        ...


@dataclass
class LocalLink:
    """Collects reports in this process; says stop at `stop_at`, if that is given."""

    stop_at: int | None = None
    reports: list[Report] = field(default_factory=list)

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        self.reports.append(Report(step, dict(metrics), checkpoint))
        return self.stop_at is None or step < self.stop_at


@dataclass
class Worker:
    """One rank during one order; steps count in the sweep's fidelity, from 1."""

    rank: int
    world_size: int
    first: int  # this order's first step
    until: int  # this order's last step
    total: int  # the whole trial's last step: schedules stretch over it, whatever `until`
    seed: int  # of the trial; equal on all ranks
    training: Training
    params: Params
    trial: str
    order: int
    metrics: tuple[str, ...]  # the names that each report of rank 0 must hold
    start: Saved | None  # where to go on from; None: from scratch
    checkpoints: Path  # the sweep's checkpoint folder
    every: int  # a checkpoint is kept at multiples of this, at milestones and at `until`
    milestones: tuple[int, ...]
    link: Link
    gpu: bool
    reported: int | None = field(default=None, init=False)  # the last step that was reported

    @classmethod
    def alone(
        cls,
        params: Params | None = None,
        until: int = 1,
        folder: Path | None = None,
        seed: int = 0,
        training: Training | None = None,
    ) -> "Worker":
        """One rank in this process, without Ray: for tests, notebooks and debuggers.

        Args:
            folder: where checkpoints go; None: a temporary folder, left to its reader.
        """
        return cls(
            rank=0,
            world_size=1,
            first=1,
            until=until,
            total=until,
            seed=seed,
            training=training or Training(),
            params=params or {},
            trial="alone",
            order=1,
            metrics=(),
            start=None,
            checkpoints=folder or Path(tempfile.mkdtemp(prefix="hposvc-")),
            every=1,
            milestones=(),
            link=LocalLink(),
            gpu=False,
        )

    @property
    def device(self) -> "torch.device":
        """This rank's device; each rank sees at most one GPU, so it is always number 0."""
        import torch

        return torch.device("cuda", 0) if self.gpu else torch.device("cpu")

    @property
    def reports(self) -> list[Report]:
        """What has been reported so far; kept by a LocalLink only."""
        if not isinstance(self.link, LocalLink):
            raise AttributeError("reports are kept by Worker.alone() only; read the journal")
        return self.link.reports

    @property
    def next_step(self) -> int:
        """The first step that may still be reported; past `until`: none."""
        return self.first if self.reported is None else self.reported + 1

    def steps(self) -> range:
        """This order's steps, the last one included."""
        return range(self.first, self.until + 1)

    def restore(self) -> Path | None:
        """The folder of the checkpoint to start from, verified; None: start from scratch.

        Raises:
            CheckpointDamaged: its bytes are not those that were saved.
        """
        return None if self.start is None else checkpoints.verify(self.start)

    def due(self, step: int) -> bool:
        """Whether a checkpoint given at this step would be kept; write none otherwise."""
        return step % self.every == 0 or step in self.milestones or step == self.until

    def scratch(self) -> Path:
        """A fresh folder to write a checkpoint into; `report` moves it, without a copy."""
        home = self._scratch_home()
        home.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=home))

    def report(
        self, step: int, metrics: Mapping[str, float], checkpoint: Path | None = None
    ) -> None:
        """Send this step's metrics; call it once a step, on every rank.

        Args:
            metrics: name to number; rank 0's are the record. NaN and infinity mean diverged.
            checkpoint: a finished folder: one of `scratch()` is moved, any other copied.

        Raises:
            StopTrial: the order ends here; let it pass.
            ReportError: the step or a metric breaks the rules.
        """
        step = self._checked_step(step)
        values = self._checked_metrics(metrics) if self.rank == 0 else {}
        saved = self._keep(step, Path(checkpoint)) if checkpoint is not None else None
        self.reported = step
        if not self.link.exchange(step, values, saved):
            raise StopTrial(f"trial {self.trial} was told to stop at step {step}")

    def close(self) -> None:
        """Drop what is left of this rank's scratch folders, once its order is over."""
        shutil.rmtree(self._scratch_home(), ignore_errors=True)

    def _scratch_home(self) -> Path:
        return self.checkpoints / SCRATCH / f"{self.trial}-{self.order}-{self.rank}"

    def _keep(self, step: int, folder: Path) -> Saved | None:
        if not folder.is_dir():
            raise self._error(f"checkpoint {folder} is not a folder; write one, then report it")
        ours = folder.is_relative_to(self._scratch_home())
        if self.rank != 0 or not self.due(step):
            if ours:
                shutil.rmtree(folder)
            return None
        if not ours:
            folder = checkpoints.copy(folder, self.scratch())
        target = self.checkpoints / self.trial / f"{self.order}-{step}"
        return checkpoints.store(folder, target, step)

    def _checked_step(self, step: int) -> int:
        lowest = self.next_step
        try:
            number = operator.index(step)
        except TypeError:
            number = -1
        if isinstance(step, bool) or not lowest <= number <= self.until:
            allowed = f"{lowest}..{self.until}" if lowest <= self.until else "none, it is over"
            raise self._error(f"step is {step!r}; steps left in this order: {allowed}")
        return number

    def _checked_metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        if not isinstance(metrics, Mapping):
            raise self._error(f"metrics is {type(metrics).__name__}; give a dict of name: number")
        if len(metrics) > MOST_METRICS:
            raise self._error(f"{len(metrics)} metrics; report at most {MOST_METRICS} a step")
        for name in metrics:
            if problem := _name_problem(name):
                raise self._error(f"metric name {name!r} {problem}")
        for name in self.metrics:
            if name not in metrics:
                nearest = get_close_matches(name, metrics, n=1, cutoff=0.0)
                hint = f"; the nearest reported is {nearest[0]!r}" if nearest else ""
                raise self._error(f"the sweep's metric {name!r} is missing{hint}")
        return {name: self._number(name, value) for name, value in metrics.items()}

    def _number(self, name: str, value: object) -> float:
        found = value
        item = getattr(value, "item", None)
        if callable(item):
            try:
                found = item()  # a numpy or torch scalar
            except (TypeError, ValueError, RuntimeError) as error:
                raise self._error(f"metric {name!r} holds several numbers; give one") from error
        if isinstance(found, bool) or not isinstance(found, numbers.Real):
            raise self._error(
                f"metric {name!r} is {found!r} ({type(found).__name__}); give a real number"
            )
        try:
            return float(found)
        except OverflowError:
            return math.copysign(math.inf, found)

    def _error(self, message: str) -> ReportError:
        return ReportError(f"trial {self.trial}, rank {self.rank}: report: {message}")


def _name_problem(name: object) -> str:
    """What MLflow would refuse about a metric's name; empty: nothing."""
    if not isinstance(name, str):
        return f"is of type {type(name).__name__}; give text"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters; use at most {LONGEST_NAME}"
    if not NAME.fullmatch(name):
        return "may hold letters, digits, spaces and _ - . / : only"
    if posixpath.normpath(name) != name or name.startswith(("/", "..")) or name == ".":
        return f"is read as a path; write {posixpath.normpath(name).strip('./') or 'metric'!r}"
    return ""
