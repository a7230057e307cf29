"""Worker: all that one rank of a trial needs to know of the world. Without torch until asked.

A trainable restores, steps, and reports; the link carries a report out and brings the decision
back. Who is at the other end (Ray actors, a debugger, a test) does not matter here.
"""

import operator
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainables.checkpoints.checkpoint import CheckpointDamaged, Every, Saved, verify
from trainables.checkpoints.keeper import Keeper
from trainables.dataset import DataSet
from trainables.link import Link, LocalLink, Report
from trainables.metrics import checked
from trainables.stopping import Notice, StopTrial
from trainables.training import Training

if TYPE_CHECKING:
    import torch

__all__ = [
    "CheckpointDamaged",
    "DataSet",
    "Diverged",
    "Link",
    "LocalLink",
    "Nan",
    "Params",
    "Report",
    "ReportError",
    "Saved",
    "TooLarge",
    "Worker",
]

Params = Mapping[str, float | int | str | bool | None]  # user units, always
Nan = Literal["stop", "skip", "rollback"]


class Diverged(Exception):
    """The training can't go on, however often it is tried; the message says why."""


class TooLarge(Exception):
    """A micro-batch did not fit into memory, and half of it may; raise it `from` that error."""


class ReportError(ValueError):
    """A report that breaks the rules; the message names trial, rank and what is allowed."""


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
    every: Every  # a checkpoint is kept so often, and at milestones and at `until`
    milestones: tuple[int, ...]
    link: Link
    gpu: bool
    nan: Nan = "stop"  # what to do with an update that is not finite, as failure.nan says
    shrink: int = 0  # how often this trial's micro-batches were halved before: they didn't fit
    storage: str | None = None  # URL of the checkpoints; None: they are in that folder
    notice: Notice = field(default_factory=Notice)  # that this process is to end soon
    reported: int | None = field(default=None, init=False)  # the last step that was reported
    kept_at: float = field(default_factory=time.monotonic, init=False)  # last; or the beginning
    saved: Saved | None = field(default=None, init=False)  # the last that this order kept; rank 0's

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
        return None if self.start is None else self.fetched(self.start)

    def fetched(self, saved: Saved) -> Path:
        """A checkpoint's folder, verified; only to be read."""
        return verify(saved, self.scratch)

    @property
    def within(self) -> int:
        """The updates of step `first` that are in the checkpoint to start from; mostly 0."""
        return 0 if self.start is None else self.start.within

    def due(self, step: int) -> bool:
        """Whether a report of this step should bring a checkpoint; write none otherwise.

        With a period in place of steps: at milestones and at `until` only.
        """
        regular = isinstance(self.every, int) and step % self.every == 0
        return regular or step in self.milestones or step == self.until

    def due_within(self, updates: int, seconds: float) -> bool:
        """Whether to `keep` one now; never, where checkpoints go by steps.

        Ranks' clocks differ: where all of them write, let rank 0 decide.

        Args:
            updates: of the optimizer, since the last checkpoint.
            seconds: as well.
        """
        if isinstance(self.every, int):
            return False
        if self.every.updates is not None:
            return updates >= self.every.updates
        return self.every.seconds is not None and seconds >= self.every.seconds

    @property
    def copied(self) -> bool:
        """Whether `start` is another trial's: with other values, and made at a step of its own."""
        return self.start is not None and Path(self.start.path).parent.name != self.trial

    def takes(self, step: int) -> bool:
        """Whether a checkpoint given with a report of this step would be kept.

        With a period of time one is, as soon as it is over; who counts updates knows when it is.
        One more is, once this process was told to end.
        """
        if self.notice.given:
            return True
        if isinstance(self.every, int) or self.due(step):
            return self.due(step)
        seconds = self.every.seconds
        return seconds is None or time.monotonic() - self.kept_at >= seconds

    def beat(self) -> None:
        """Say that this rank is at work: at each update, say; it costs next to nothing.

        One that beats at all, and then neither beats nor reports for `failure.stall`, hangs.
        """
        self.link.beat()

    def scratch(self) -> Path:
        """A fresh folder to write a checkpoint into; `report` moves it, without a copy."""
        return self.keeper.scratch()

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
        values = checked(metrics, self.metrics, self._error) if self.rank == 0 else {}
        saved = None if checkpoint is None else self._take(step, self._checked_folder(checkpoint))
        self.reported = step
        if not self.link.exchange(step, values, saved):
            raise StopTrial(f"trial {self.trial} was told to stop at step {step}")

    def keep(self, step: int, folder: Path, within: int = 0) -> None:
        """Keep a checkpoint that no report brings; from any thread, before the order is over.

        Args:
            step: the last whole step in it: reported by now, or the one before `first`.
            folder: a finished one: one of `scratch()` is moved, any other copied.
            within: updates of the next step that it holds as well; 0: it is of `step` alone.

        Raises:
            ReportError: there is no such step.
        """
        folder = self._checked_folder(folder)
        last = self.next_step - 1
        lowest = self.first - 1 if within else self.first
        if not lowest <= step <= min(last, self.until - (1 if within else 0)) or within < 0:
            where = f"{within} updates after step {step}" if within else f"step {step}"
            raise self._error(
                f"a checkpoint of {where}; steps done in this order: {self.first}..{last}"
            )
        saved = self._store(step, within, folder)
        if saved is not None:
            self.link.keep(saved)

    def uses(self, *data: DataSet) -> None:
        """Say which samples the trial has, for its record; a Task's are told without a call.

        Only a trial's first word counts, and that of rank 0: to call it everywhere does no harm.
        """
        if self.rank == 0 and self.start is None:
            self.link.uses(data)

    def close(self) -> None:
        """Drop what is left of this rank's scratch folders, once its order is over."""
        self.keeper.close()

    @property
    def keeper(self) -> Keeper:
        """What moves this rank's folders into place."""
        return Keeper(self.checkpoints, self.storage, self.trial, self.order, self.rank)

    def _checked_folder(self, folder: Path) -> Path:
        if not Path(folder).is_dir():
            raise self._error(f"checkpoint {folder} is not a folder; write one, then report it")
        return Path(folder)

    def _take(self, step: int, folder: Path) -> Saved | None:
        """What came with a report, if it is wanted."""
        if self.takes(step):
            return self._store(step, 0, folder)
        self.keeper.drop(folder)
        return None

    def _store(self, step: int, within: int, folder: Path) -> Saved | None:
        """Make it durable; rank 0's is the record."""
        if self.rank != 0:
            self.keeper.drop(folder)
            self.kept_at = time.monotonic()
            return None
        saved = self.keeper.keep(step, within, folder)
        self.saved, self.kept_at = saved, time.monotonic()
        return saved

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

    def _error(self, message: str) -> ReportError:
        return ReportError(f"trial {self.trial}, rank {self.rank}: report: {message}")
