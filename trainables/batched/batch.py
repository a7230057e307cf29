"""Several trials of one shape in one process: an epoch of all of them at once, again and again.

Each has its own step, order of samples, schedule and random numbers, so it comes to what it would
have come to alone; one that is stopped leaves, and another may take its place.

Axes: K trials, N training samples, B samples of a batch, P weights of a trial.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from trainables.batched import refusals
from trainables.batched.fields import differing
from trainables.batched.lockstep import Lockstep, Tallied
from trainables.batched.member import Member
from trainables.fitting import settings
from trainables.randomness import preserved
from trainables.stopping import Preempted, StopTrial
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


class Left(NamedTuple):
    """A trial that is in the batch no more."""

    worker: Worker
    error: Exception | Preempted | None  # None: its order is over, or was stopped


class Batch:
    """At most so many trials that train at once; use it as a context."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"a batch of {most} trials; give 1 or more")
        self.most = most
        self._members: list[Member] = []
        self._settings = ExitStack()  # torch's, of all trials that are here
        self._lockstep: Lockstep | None = None  # None: there is no trial
        self._whole = ExitStack()

    def __enter__(self) -> Self:
        self._whole.enter_context(preserved())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        with self._whole:
            self.clear()

    def clear(self) -> None:
        """Let all trials go as they are: what goes wrong there is nothing to what went before."""
        for member in self._members:
            with suppress(Exception):
                member.closing.close()
        self._members, self._lockstep = [], None
        self._settings.close()

    @property
    def workers(self) -> list[Worker]:
        """Those of the trials that are here."""
        return [member.worker for member in self._members]

    def add(self, task: "Task", worker: Worker) -> bool:
        """Take a trial in, from the next epoch on; False: it had but a step to finish, alone.

        Raises:
            Unbatchable: it cannot train at once with those that are here.
            ValueError: there is no room, or what it would raise alone.
        """
        if len(self._members) == self.most:
            raise ValueError(f"a batch of {self.most} trials is full")
        pattern = self._members[0] if self._members else None
        refusals.check_options(worker, None if pattern is None else pattern.worker.training)
        if pattern is None:
            self._settings.enter_context(settings.applied(worker.training, worker.device))
        else:
            refusals.check_tasks(task, pattern.session.task)
        try:
            member = Member.begin(task, worker)
            try:
                return self._take(member, pattern)
            except BaseException:
                member.closing.close()
                raise
        except StopTrial:
            return False
        finally:
            if not self._members:
                self._settings.close()

    def epoch(self) -> list[Left]:
        """A step of every trial, reported to each one's worker; returns those that leave with it.

        Raises:
            Unbatchable: the task computes what cannot be computed for several trials at once.
        """
        if self._lockstep is None:
            return []
        tallies = self._lockstep.train()
        at_milestone = [member.step in member.worker.milestones for member in self._members]
        if sum(at_milestone) > 1:  # decisions are waited for together
            with ThreadPoolExecutor(sum(at_milestone)) as pool:
                left = dict(pool.map(self._report, range(len(tallies)), tallies))
        else:
            left = dict(map(self._report, range(len(tallies)), tallies))
        gone = {row: each for row, each in left.items() if each is not None}
        return self._dismiss(gone) if gone else []

    def leave(self, why: str) -> list[Left]:
        """End all trials where they are; the step that each has reported is kept, due or not."""
        left = {}
        for row, member in enumerate(self._members):
            error = Preempted(why)
            try:
                if member.step - 1 == member.worker.reported:  # in this order
                    self._keep(row, member)
            except Exception as failure:  # noqa: BLE001 - it goes on from its last checkpoint
                error = Preempted(f"{why}; step {member.worker.reported} is not kept: {failure}")
            left[row] = Left(member.worker, error)
        return self._dismiss(left) if left else []

    def _keep(self, row: int, member: Member) -> None:
        assert self._lockstep is not None
        try:
            self._lockstep.lay(row)
            member.session.saver.keep_step(member.step - 1, member.session.state)
        finally:
            self._lockstep.saved(row)

    def _report(self, row: int, tallied: Tallied) -> tuple[int, Left | None]:
        """Report a trial's step; None: it goes on."""
        assert self._lockstep is not None
        member, error = self._members[row], None
        try:
            self._lockstep.save(row)
            member.report(*tallied)
            if not member.is_over:
                return row, None
        except StopTrial:
            pass
        except Exception as failure:  # noqa: BLE001 - the other trials go on
            error = failure
        finally:
            self._lockstep.saved(row)
        return row, Left(member.worker, error)

    def _take(self, member: Member, pattern: Member | None) -> bool:
        """Whether there is anything left to do for it."""
        if member.is_over:
            member.closing.close()
            return False
        session = member.session
        if self._lockstep is None or pattern is None:
            refusals.check_data(session.passes.data, session.passes.data)
            refusals.check_model(session.passes.bare, session.passes.bare, [])
            lockstep = Lockstep(member)
        else:
            other, lockstep = pattern.session, self._lockstep
            refusals.check_data(session.passes.data, other.passes.data)
            names = differing([session.task, other.task])
            refusals.check_model(session.passes.bare, other.passes.bare, names)
            lockstep.check(member)
            member.share(other.passes.data)
        lockstep.add(member)
        self._members, self._lockstep = lockstep.members, lockstep
        return True

    def _dismiss(self, left: dict[int, Left]) -> list[Left]:
        """Close what these have, and move the others together."""
        assert self._lockstep is not None
        found = []
        for row, (worker, error) in left.items():
            try:
                self._members[row].closing.close()
            except Exception as failure:  # noqa: BLE001 - of the writing of its checkpoints
                error = error or failure
            found.append(Left(worker, error))
        self._lockstep.keep([row for row in range(len(self._members)) if row not in left])
        self._members = self._lockstep.members
        if not self._members:
            self._lockstep = None
            self._settings.close()
        return found
