"""Worker: the interface of one rank of a trial to the sweep. Imports torch only when needed.

A trainable restores, steps, and reports; the link sends each report and returns the decision. The
other end of the link (Ray actors, a debugger, a test) does not matter here.
"""

import operator
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainables.dataset import DataSet
from trainables.link import CheckpointSaved, DataDeclared, Link, LocalLink, Report, Suggestion
from trainables.metrics import CheckedMetrics, checked
from trainables.order import Params
from trainables.stop_signals import Notice, StopTrial
from trainables.storage.checkpoint import (
    CheckpointDamaged,
    Every,
    Saved,
    file_system_view,
    temporary_folder,
    verify,
)
from trainables.storage.writer import CheckpointWriter
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

Nan = Literal["stop", "skip", "rollback"]
COMPARED = 1000  # steps whose values are kept, to be compared with those of a step told again


class Diverged(Exception):
    """The training cannot continue, and retries will not help; the message says why."""


class PassLost(Exception):
    """A pass that was made with those of other trials has failed: make it again."""


class Sharing(Protocol):
    """What a rank shares with the other trials of its process; see `training.share_base`."""

    def fit(self, task: Any, worker: "Worker") -> bool:
        """Train a task's order at once with others; False: the trainer is to train it."""
        ...

    def pass_turn(self) -> None:
        """Let other trials make an update first, if they wait for it."""
        ...

    def in_pass(self) -> AbstractContextManager[None]:
        """Return the context of passes, whose activations are gone at its end."""
        ...

    def share_model(self, model: "torch.nn.Module") -> None:
        """Let the model's frozen weights use the memory of other trials' equal ones."""
        ...

    def joined(self, model: "torch.nn.Module") -> "torch.nn.Module":
        """Return the model to call in training; its passes may be made with other trials'."""
        ...

    def backward(
        self, roots: "tuple[torch.Tensor, ...]", gradients: "tuple[torch.Tensor, ...]"
    ) -> None:
        """Make the backward pass of a forward pass.

        Raises:
            PassLost: make both again.
        """
        ...

    def shared(self, tensors: "tuple[torch.Tensor, ...]") -> "tuple[torch.Tensor, ...]":
        """Return other trials' tensors in place of equal ones."""
        ...


class TooLarge(Exception):
    """A micro-batch did not fit into memory, but half of it may; raise it `from` that error."""


class ReportError(ValueError):
    """A report breaks the rules; the message says what is allowed."""


@dataclass
class Worker:
    """A rank during an order; steps count in the sweep's fidelity, from 1."""

    rank: int
    world_size: int
    first: int  # this order's first step
    until: int | None  # this order's last step; None: where the trainable returns
    # The trial's last step, which schedules are planned for, whatever `until` is. None: unknown,
    # since the sweep has no fidelity.
    total: int | None
    seed: int  # of the trial; equal on all ranks
    training: Training
    params: Params
    trial: str
    order: int
    metrics: tuple[str, ...]  # of the sweep: reports of rank 0 that have them all are judged
    start: Saved | None  # the checkpoint to resume from; None: from scratch
    checkpoints: Path  # the sweep's checkpoint folder
    every: Every  # the period of checkpoints; others are kept at milestones and at `until`
    milestones: tuple[int, ...]
    link: Link
    gpu: bool
    nan: Nan = "stop"  # the treatment of a non-finite update, from failure.nan
    shrink: int = 0  # how often this trial's micro-batches were halved before, as they didn't fit
    storage: str | None = None  # URL of the checkpoints; None: the folder `checkpoints`
    sweep_seed: int = 0  # `seed` is another one for each trial, and for each replicate of a trial
    unit: str = "epoch"  # of steps, as fidelity.unit says; see length.py for a Task's
    interval: int = 1  # steps from one report of a Task to the next
    hosts: tuple[str, ...] = ()  # of all ranks; empty: this is the only rank, or one of a batch
    datasets: Mapping[str, str] = field(default_factory=dict)  # functions that make them, by name
    notice: Notice = field(default_factory=Notice)  # given when this process will end soon
    sharing: Sharing | None = None  # with other trials of this process; None: there are none
    reported: int | None = field(default=None, init=False)  # the last reported step
    kept_at: float = field(default_factory=time.monotonic, init=False)  # last checkpoint, or start
    saved: Saved | None = field(default=None, init=False)  # this order's last checkpoint; on rank 0
    asked: bool = field(default=False, init=False)  # for the checkpoint to resume from
    # Returns the energy of this order on this rank so far, if it is measured; None: nobody asks.
    kwh: Callable[[], float | None] | None = field(default=None, init=False)
    told_to_stop: bool = field(default=False, init=False)  # by the answer to a report
    beyond: bool = field(default=False, init=False)  # whether it tried to report a step too many
    left_out: set[str] = field(default_factory=set, init=False)  # metrics that were no numbers
    values: dict[int, dict[str, float]] = field(default_factory=dict, init=False)  # by step; rank 0
    warning: str = field(default="", init=False)  # of the first doubtful report; on rank 0
    # Parameters that the trainable has not asked for; None: it does not ask for each by its name.
    unused: tuple[str, ...] | None = field(default=None, init=False)

    @classmethod
    def alone(
        cls,
        params: Params | None = None,
        until: int | None = 1,
        folder: Path | None = None,
        seed: int = 0,
        training: Training | None = None,
        gpu: bool = False,
        unit: str = "epoch",
        interval: int = 1,
    ) -> "Worker":
        """Return the only rank of a trial in this process, without Ray: for tests and notebooks.

        Args:
            gpu: whether to train on this process's first GPU.
            folder: for checkpoints; None: a folder that is removed when this process ends.
            unit: of `until`: a Task's is epoch, epoch/10, update, sample or token.
            interval: steps from one report of a Task to the next.
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
            checkpoints=folder or temporary_folder(),
            every=1,
            milestones=(),
            link=LocalLink(),
            gpu=gpu,
            unit=unit,
            interval=interval,
        )

    @property
    def device(self) -> "torch.device":
        """This rank's device; each rank sees at most one GPU, so it is always number 0."""
        import torch

        return torch.device("cuda", 0) if self.gpu else torch.device("cpu")

    @property
    def reports(self) -> list[Report]:
        """The reports so far; available with a LocalLink only."""
        if not isinstance(self.link, LocalLink):
            raise AttributeError("reports are kept by Worker.alone() only; read the journal")
        return self.link.reports

    @property
    def next_step(self) -> int:
        """The first step that may still be reported; past `until`, no step may be."""
        return self.first if self.reported is None else self.reported + 1

    @property
    def is_over(self) -> bool:
        """Whether all steps of this order have been reported."""
        return self.until is not None and self.next_step > self.until

    def pauses_at(self, step: int) -> bool:
        """Return whether the order ends at a step but the trial does not: at a scheduler's rung."""
        return step == self.until and self.until != self.total

    def steps(self) -> range:
        """Return this order's steps, including the last.

        Raises:
            ReportError: their number is unknown.
        """
        if self.until is None:
            raise self._unknown_length_error("steps()")
        return range(self.first, self.until + 1)

    def next_report(self, step: int) -> int:
        """Return the step after this one at which a Task evaluates and reports next."""
        regular = (step // self.interval + 1) * self.interval
        return min(end for end in (regular, *self.milestones, self.steps()[-1]) if end > step)

    @property
    def length(self) -> int:
        """The trial's last step, `total`.

        Raises:
            ReportError: it is unknown.
        """
        if self.total is None:
            raise self._unknown_length_error("length")
        return self.total

    def _unknown_length_error(self, what: str) -> ReportError:
        return ReportError(
            f"worker.{what} is how long a trial is, and the spec does not say it; give fidelity: "
            "{max: N}, or report each step by worker.report(worker.next_step, {...}) and return"
        )

    def restore(self) -> Path | None:
        """Return the folder of the checkpoint to start from; None: start from scratch.

        Of the ranks that share a file system, the first to ask verifies the checkpoint; not every
        rank need ask.

        Raises:
            CheckpointDamaged: its bytes are not those that were saved.
        """
        self.asked = True
        if (start := self.start) is None:
            return None
        name = f"checkpoint on {file_system_view()}"
        folder = Path(self.link.once(name, lambda: f"{self.fetched(start)}"))
        try:
            return self.writer.keep_files(folder)
        except OSError:
            return self.fetched(start)

    def fetched(self, saved: Saved) -> Path:
        """Fetch and verify a checkpoint, and return its folder, which must only be read."""
        self.asked = True
        return verify(saved, self.scratch)

    @property
    def within(self) -> int:
        """The updates of step `first` that are in the checkpoint to start from; usually 0."""
        return 0 if self.start is None else self.start.within

    def due(self, step: int) -> bool:
        """Return whether a report of this step should have a checkpoint; write none otherwise.

        If `every` is a period of time or updates: at milestones and at `until` only.
        """
        regular = isinstance(self.every, int) and step % self.every == 0
        return regular or step in self.milestones or step == self.until

    def due_within(self, updates: int, seconds: float) -> bool:
        """Return whether to `keep` a checkpoint within a step; never if `every` counts steps.

        Clocks of ranks differ: where all ranks write, let rank 0 decide.

        Args:
            updates: of the optimizer, since the last checkpoint.
            seconds: since the last checkpoint.
        """
        if isinstance(self.every, int):
            return False
        if self.every.updates is not None:
            return updates >= self.every.updates
        return self.every.seconds is not None and seconds >= self.every.seconds

    @property
    def copied(self) -> bool:
        """Whether `start` is another trial's checkpoint: with other parameters, at any step."""
        return self.start is not None and Path(self.start.path).parent.name != self.trial

    def takes(self, step: int) -> bool:
        """Return whether a checkpoint passed with a report of this step would be kept.

        If `every` is a period of time, it is kept once the period has elapsed; if it counts
        updates, always: the caller counts them. After a notice to end, it is always kept.
        """
        if self.notice.given:
            return True
        if isinstance(self.every, int) or self.due(step):
            return self.due(step)
        seconds = self.every.seconds
        return seconds is None or time.monotonic() - self.kept_at >= seconds

    def beat(self) -> None:
        """Signal that this rank is making progress, for example at each update; it is very cheap.

        A rank that has beaten once, and then neither beats nor reports for `failure.stall`, is
        considered hung.
        """
        self.link.beat()

    def scratch(self) -> Path:
        """Return a new folder to write a checkpoint into; `report` moves it instead of copying."""
        return self.writer.scratch()

    def report(self, step: int, metrics: Mapping[str, Any], checkpoint: Path | None = None) -> None:
        """Send this step's metrics; call it once per step, on every rank.

        The first report of a step stands: a later one of that step, or of one before it, is left
        out. The sweep warns of it unless its values are the same.

        Args:
            metrics: name to number; rank 0's are recorded. NaN and infinity as the sweep's metric
                mean diverged. Other metrics that are no numbers are left out, with a warning.
                Steps without the sweep's metric are recorded; the trial is judged at the next
                step that has it.
            checkpoint: a finished folder: one of `scratch()` is moved, any other copied.

        Raises:
            StopTrial: the order ends here; do not catch it.
            ReportError: the step, or the sweep's metric, breaks the rules.
        """
        number = self._whole_number(step)
        if 0 < number < self.next_step:
            self._leave_out(number, metrics, checkpoint)
            return
        if self.is_over and number > 0:
            self.beyond = self.until == self.total
            raise StopTrial(f"trial {self.trial} has done the last step of this order")
        step = self._checked_step(step, number)
        if self.rank == 0 and self.start is not None and not (self.asked or self.warning):
            self.warning = (
                f"it goes on from the checkpoint of step {self.start.step}, but did not ask for it "
                "before it reported; if it trained from scratch, begin with worker.restore() or "
                "hposvc.get_checkpoint()"
            )
        values, left_out = self._checked_metrics(metrics) if self.rank == 0 else ({}, {})
        saved = (
            None
            if checkpoint is None
            else self._keep_if_due(step, self._checked_folder(checkpoint))
        )
        self.reported = step
        self.values[step] = values
        if len(self.values) > COMPARED:
            del self.values[next(iter(self.values))]
        judged = self.rank != 0 or values.keys() >= {*self.metrics}
        used = None if self.kwh is None else self.kwh()
        if not self.link.exchange(Report(self.order, step, values, saved, left_out, judged, used)):
            self.told_to_stop = True
            raise StopTrial(f"trial {self.trial} was told to stop at step {step}")

    def keep(self, step: int, folder: Path, within: int = 0) -> None:
        """Keep a checkpoint without a report; from any thread, before the order is over.

        Args:
            step: the last complete step in it: already reported, or the one before `first`.
            folder: a finished folder: one of `scratch()` is moved, any other copied.
            within: updates of the next step that it includes; 0: none.

        Raises:
            ReportError: the step is not one of those done in this order.
        """
        folder = self._checked_folder(folder)
        last = self.next_step - 1
        lowest = self.first - 1 if within else self.first
        highest = last if self.until is None else min(last, self.until - (1 if within else 0))
        if not lowest <= step <= highest or within < 0:
            position = f"{within} updates after step {step}" if within else f"step {step}"
            raise self._error(
                f"a checkpoint of {position}; steps done in this order: {self.first}..{last}"
            )
        saved = self._store(step, within, folder)
        if saved is not None:
            self.link.tell(CheckpointSaved(self.order, saved))

    def uses(self, *data: DataSet) -> None:
        """Record which samples the trial uses; a Task's are recorded without a call.

        Only the first call of a trial on rank 0 counts, so calling it everywhere does no harm.
        """
        if self.rank == 0 and self.start is None:
            self.link.tell(DataDeclared(self.order, data))

    def suggests(
        self, name: str, value: float | int | str | bool | None, domain: Mapping[str, Any]
    ) -> None:
        """Record a parameter that the sweep lacks, and whose value was decided within the trial.

        It is shown among the trial's parameters; no searcher sees it. Call it on every rank with
        the same value; rank 0's is recorded.

        Args:
            domain: what the value was drawn from, as a spec declares it: min, max, values, ...
        """
        if self.rank == 0:
            self.link.tell(Suggestion(self.order, name, value, dict(domain)))

    def close(self) -> None:
        """Remove the remaining scratch folders of this rank, once its order is over."""
        self.writer.close()

    @property
    def writer(self) -> CheckpointWriter:
        """The writer that moves this rank's checkpoint folders into place."""
        return CheckpointWriter(self.checkpoints, self.storage, self.trial, self.order, self.rank)

    def _checked_folder(self, folder: Path) -> Path:
        if not Path(folder).is_dir():
            raise self._error(f"checkpoint {folder} is not a folder; write one, then report it")
        return Path(folder)

    def _keep_if_due(self, step: int, folder: Path) -> Saved | None:
        """Store the checkpoint of a report if it is due, or drop its folder."""
        if self.takes(step):
            return self._store(step, 0, folder)
        self.writer.drop(folder)
        return None

    def _store(self, step: int, within: int, folder: Path) -> Saved | None:
        """Make a checkpoint durable; only rank 0's is kept."""
        if self.rank != 0:
            self.writer.drop(folder)
            self.kept_at = time.monotonic()
            return None
        saved = self.writer.keep(step, within, folder)
        self.saved, self.kept_at = saved, time.monotonic()
        return saved

    def _whole_number(self, step: int) -> int:
        """Return the step; -1: it is no whole number."""
        try:
            return -1 if isinstance(step, bool) else operator.index(step)
        except TypeError:
            return -1

    def _checked_step(self, step: int, number: int) -> int:
        lowest, last = self.next_step, self.until
        if number < lowest or (last is not None and number > last):
            hint = "; steps count from 1: report epoch + 1, or no step" if number == 0 else ""
            left = f"{lowest} or a later one" if last is None else f"one of {lowest} to {last}"
            left = f"{last}, the last one" if lowest == last else left
            raise self._error(f"step is {step!r}; the next step is {left}{hint}")
        return number

    def _leave_out(self, step: int, metrics: Mapping[str, Any], checkpoint: Path | None) -> None:
        """Leave out a report of a step that was reported before, and note it if it differs."""
        if checkpoint is not None:
            self.writer.drop(self._checked_folder(checkpoint))
        if self.rank != 0 or self.warning:
            return
        if step < self.first:
            self.warning = (
                f"step {step} was reported before, and training goes on from step {self.first}; "
                "load the checkpoint (hposvc.get_checkpoint, worker.restore), and count on from it"
            )
            return
        if len(self.values) == COMPARED and step < next(iter(self.values)):
            return  # what it had is forgotten
        if step not in self.values:
            self.warning = (
                f"step {step} came after step {self.reported}, and is left out: report steps in "
                "their order"
            )
            return
        before = self.values[step]
        values, _ = self._checked_metrics(metrics)
        new = [name for name in values if name not in before]
        other = [name for name in before.keys() & values.keys() if before[name] != values[name]]
        if other:
            now, then = (f"{each[min(other)]:g}" for each in (values, before))
            self.warning = (
                f"step {step} was reported before with other values ({min(other)} is {now}, was "
                f"{then}); the first report stands. Where folds or repeated fits count from 1 "
                "again, report the mean of the folds, or count on over them"
            )
        elif new:
            self.warning = (
                f"step {step} was reported before without {', '.join(new)}, which is left out; "
                "report all metrics of a step in one call"
            )

    def _checked_metrics(self, metrics: Mapping[str, object]) -> CheckedMetrics:
        """Return the numbers, and what else there is under names for the first time."""
        values, left_out = checked(metrics, self.metrics, self._error)
        new = {name: kind for name, kind in left_out.items() if name not in self.left_out}
        self.left_out.update(new)
        return CheckedMetrics(values, new)

    def _error(self, message: str) -> ReportError:
        return ReportError(f"report: {message}")
