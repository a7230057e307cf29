"""A rank that carries out several orders at once: it trains their trials in a Batch."""

import queue
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainables import load
from trainables.batched.batch import Batch, Left
from trainables.batched.refusals import Unbatchable
from trainables.batched.wire import EVERY, Answer, Told
from trainables.checkpoints.checkpoint import CheckpointDamaged, Saved
from trainables.dataset import DataSet
from trainables.scripts.endings import out_of_memory
from trainables.slots import hygiene
from trainables.slots.assignment import (
    Assignment,
    Outcome,
    OutcomeKind,
    Place,
    kind_of,
    worker_of,
)
from trainables.slots.capturing import captured
from trainables.slots.preemption import TOLD, Watch
from trainables.slots.pulse import Pulse, Signs
from trainables.slots.redaction import redact, redact_file
from trainables.slots.wire import Done, Keep, Leave, Line, Report, Uses, Warned
from trainables.stopping import Notice, Preempted
from trainables.task import Task


class Desk:
    """Takes what the leader sends: orders, answers to reports, and that all orders are to end."""

    def __init__(self, line: Line, signs: Signs, notice: Notice) -> None:
        self.line, self.signs, self.notice = line, signs, notice
        self.why = f"the rank {TOLD}"  # if notice is given
        self._tasks: queue.Queue[Assignment | None] = queue.Queue()  # None: the leader is gone
        self._answers: dict[int, queue.Queue[bool]] = {}
        self._awaiting: set[int] = set()  # orders at milestones
        threading.Thread(target=self._hear, name="desk", daemon=True).start()

    def wait(self) -> Assignment:
        """The next order.

        Raises:
            EOFError: the leader is gone.
        """
        task = self._tasks.get()
        if task is None:
            self._tasks.put(None)
            raise EOFError
        return task

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to wait for at the moment."""
        return self._tasks.empty()

    def report(self, told: Told) -> bool:
        """Pass a report on, from any thread; whether its order goes on."""
        order, awaited = told.order, told.report.answered
        if awaited:
            self._awaiting.add(order)
        self.signs.given, self.signs.waits = True, bool(self._awaiting)
        self.line.say(told)
        try:
            return self._answers[order].get(block=awaited)
        except queue.Empty:
            return True
        finally:
            self._awaiting.discard(order)
            self.signs.waits = bool(self._awaiting)

    def forget(self, order: int) -> None:
        """This order is over."""
        self._answers.pop(order, None)

    def _hear(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                what = self.line.hear()
                if isinstance(what, Leave):
                    self.why = what.why
                    self.notice.give()
                elif not isinstance(what, Answer):
                    self._answers[what.order] = queue.Queue()
                    self._tasks.put(what)
                elif what.order in self._answers:
                    self._answers[what.order].put(what.go_on)
        for waiting in list(self._answers.values()):
            waiting.put(False)
        self._tasks.put(None)


@dataclass
class _Link:
    """An order's end of the line."""

    desk: Desk
    task: Assignment

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        # Only a milestone waits for the controller; a stop in between counts as soon as it comes.
        awaited = step in self.task.milestones
        report = Report(step, metrics, checkpoint, awaited)
        return self.desk.report(Told(self.task.order, report))

    def keep(self, saved: Saved) -> None:
        self.desk.signs.given = True
        self.desk.line.say(Keep(self.task.order, saved))

    def uses(self, data: tuple[DataSet, ...]) -> None:
        self.desk.line.say(Uses(self.task.order, data))

    def beat(self) -> None:
        self.desk.signs.beat()


@dataclass
class _Server:
    """Trains what is ordered until nothing is left of it."""

    place: Place
    desk: Desk
    most: int
    running: dict[int, Assignment] = field(default_factory=dict)
    last: Outcome | None = None  # of all, it is told when it is known what they have left behind

    def serve(self, task: Assignment) -> None:
        """Carry out this order, and all that come while there is one."""
        before = hygiene.baseline()
        with Batch(self.most) as batch:
            self._add(batch, task)
            while batch.workers:
                while self._has_room(batch) and not self.desk.is_empty:
                    self._add(batch, self.desk.wait())
                left = [] if self.desk.notice.given else self._epoch(batch)
                if self.desk.notice.given:
                    left += batch.leave(self.desk.why)
                for worker, failure in left:
                    worker.close()
                    self._end(self.running[worker.order], failure)
        residues = (*hygiene.restore(before), *hygiene.difference(before, hygiene.baseline()))
        residues += (f"it {TOLD}",) * self.desk.notice.given
        assert self.last is not None
        self._tell(Outcome(self.last.order, self.last.kind, self.last.message, residues))

    def _add(self, batch: Batch, task: Assignment) -> None:
        self.running[task.order] = task
        worker = worker_of(self.place, task, 0, _Link(self.desk, task))
        failure = None
        try:
            if batch.add(_task(self.place, task), worker):
                return
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            failure = error
        worker.close()
        self._end(task, failure)

    def _has_room(self, batch: Batch) -> bool:
        return len(batch.workers) < batch.most and not self.desk.notice.given

    def _epoch(self, batch: Batch) -> list[Left]:
        try:
            return batch.epoch()
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            return self._give_up(batch, error)

    def _give_up(self, batch: Batch, error: Exception) -> list[Left]:
        """End all trials with an error; where memory ran out, fewer are to train at once."""
        workers = batch.workers
        if out_of_memory(error) and len(workers) > 1:
            self.most = batch.most = len(workers) // 2
            text = f"{len(workers)} trials at once did not fit into memory; from now on {self.most}"
            error = _Crowded(f"{text}: {error}")
        batch.clear()
        return [Left(worker, error) for worker in workers]

    def _end(self, task: Assignment, error: Exception | Preempted | None) -> None:
        del self.running[task.order]
        self.desk.forget(task.order)
        kind = _kind(task, error)
        message = redact(_message(kind, error), self.place.secrets.values())
        self.last = Outcome(task.order, kind, message)
        if self.running:
            self._tell(self.last)

    def _tell(self, outcome: Outcome) -> None:
        self.desk.line.say(Done(outcome))


class _Crowded(Exception):
    """Memory ran out for several trials; each of them may fit."""


def serve(place: Place, line: Line, pulse: Pulse, log: Path) -> None:
    """Carry out the leader's orders, several at once, until it is gone.

    Args:
        log: where the output of all trials goes.

    Raises:
        EOFError, OSError: the leader is gone.
    """
    signs = Signs()
    watch = Watch(lambda order: line.say(Warned(order)))
    desk = Desk(line, signs, watch.notice)
    most = place.training.batched
    while True:
        task = desk.wait()
        with watch.during(EVERY), captured(log), pulse.during(EVERY, signs):
            server = _Server(place, desk, most)
            server.serve(task)
            most = server.most
        redact_file(log, place.secrets.values())


def _task(place: Place, task: Assignment) -> Task:
    """The task that an order is about.

    Raises:
        Unbatchable: the trainable is something else.
    """
    bound = load.bind(load.resolve(place.trainable), task.params)
    found = getattr(bound, "__self__", None)
    if not isinstance(found, Task):
        raise Unbatchable(
            f"training.batched is {place.training.batched}, but {place.trainable} is no Task; "
            "leave it out, or give a Task"
        )
    return found


def _kind(task: Assignment, error: Exception | Preempted | None) -> OutcomeKind:
    if error is None:
        return "ended"
    if isinstance(error, Preempted):
        return "preempt"
    if isinstance(error, CheckpointDamaged):
        started = task.start is not None and error.file.startswith(f"{task.start.path}/")
        return "damaged" if started else "collateral"
    return "collateral" if isinstance(error, _Crowded) else kind_of(error)


def _message(kind: OutcomeKind, error: Exception | Preempted | None) -> str:
    """What to say of an error; where it is the user's, with where it comes from."""
    if error is None:
        return ""
    if isinstance(error, Preempted):
        return error.reason
    whole = "".join(traceback.format_exception(error))
    print(whole, file=sys.stderr, flush=True)  # noqa: T201 - the log is where it goes
    return f"{error}" if kind in ("diverged", "damaged", "collateral") else whole
