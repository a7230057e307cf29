"""Trials of one shape that make their steps at once; see `training.trials_per_process`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainables.errors import out_of_memory
from trainables.link import Report
from trainables.sharing.wanted import PassedOn, TooManyTrials, Wanted
from trainables.stop_signals import SIGTERM_TEXT, Preempted
from trainables.task import Task
from trainables.vmapped.batch import Batch
from trainables.vmapped.trial_state import VmappedTrial
from trainables.vmapped.vmap_trainer import Tallied
from trainables.worker import Worker


@dataclass(eq=False)
class VmappedStep(Wanted):
    """A step of a trial, which waits until it is made with those of all others."""

    trial: VmappedTrial
    tallied: Tallied | None = field(default=None, init=False)  # None: the process is to end


@dataclass
class _StayingLink(PassedOn):
    """A link that only notes that its order is to leave: its row is to be saved before."""

    why: str = ""

    def exchange(self, report: Report) -> bool:
        try:
            return self.link.exchange(report)
        except Preempted as preemption:
            self.why = preemption.reason
            return True


class VmappedSteps:
    """Makes the steps of all trials of a process.

    Args:
        most: trials at once.
    """

    for_all = True

    def __init__(self, most: int) -> None:
        self._batch = Batch(most)

    def forget(self) -> None:
        """Do nothing: a trial that ends takes its row along."""

    def train(self, task: Task, worker: Worker, ask: Callable[[Wanted], None]) -> None:
        """Train a trial's order beside the others."""
        worker.link = link = _StayingLink(worker.link)
        trial = self._batch.add(task, worker)
        if trial is None:
            return
        try:
            while not trial.is_over:
                if worker.notice.given or link.why:
                    if worker.reported == trial.step - 1:  # in this order
                        self._batch.keep_reported(trial)
                    raise Preempted(link.why or f"the rank {SIGTERM_TEXT}")
                step = VmappedStep(trial)
                ask(step)
                if step.error is not None:
                    raise step.error
                if step.tallied is not None:
                    self._batch.report(trial, step.tallied)
        finally:
            self._batch.remove(trial)

    def make(self, waiting: Sequence[VmappedStep]) -> Sequence[Wanted]:
        """Train a step of all trials."""
        if any(step.trial.worker.notice.given for step in waiting):
            return waiting
        try:
            tallies = dict(zip(self._batch.trials, self._batch.train(), strict=True))
            for step in waiting:
                step.tallied = tallies[step.trial]
        except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
            failure = error
            if out_of_memory(error) and len(waiting) > 1:
                failure = TooManyTrials(len(waiting), len(waiting) // 2, error)
            for step in waiting:
                step.error = failure
        return waiting
