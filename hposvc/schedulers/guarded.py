"""A user's own scheduler, whose errors and wrong answers are named as its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from numpy.random import Generator

from hposvc.errors import PlugInFailed, is_built_in, plug_in_raised, wrong_plug_in_answer
from hposvc.schedulers.scheduler import (
    Advance,
    Change,
    Decision,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Policy,
    Report,
    Scheduler,
    SearchDone,
    TrialStop,
    Wait,
)
from searchers import Params, Space, SpaceError

T = TypeVar("T")

MOVES = (NewTrial, Advance, Wait, SearchDone)
VERDICTS = ("continue", "pause", "stop")


def begin_scheduler(name: str, policy: Policy, plan: Plan) -> Scheduler:
    """Return a policy's scheduler for one sweep; that of a user's own policy is guarded.

    Raises:
        PlugInFailed: the user's own policy raised.
    """
    if is_built_in(policy):
        return policy.scheduler(plan)
    name = f"scheduler.type {name}"
    try:
        return Guarded(name, policy.scheduler(plan), plan)
    except (Exception, SystemExit) as error:
        raise plug_in_raised(name, policy, error) from error


@dataclass(frozen=True)
class _GuardedChange:
    donor: str | None
    values: Callable[[Space, Params, Generator], Params]


@dataclass
class Guarded:
    """A scheduler that passes everything on to the user's, and checks its answers.

    Its methods raise a PlugInFailed if the user's scheduler raises, or breaks the rules.
    """

    name: str
    scheduler: Scheduler
    plan: Plan
    paused: set[str] = field(default_factory=set)  # trials that can go on
    running: set[str] = field(default_factory=set)  # trials that can still bring new facts
    known: set[str] = field(default_factory=set)  # all trials that ever ran

    @property
    def copies(self) -> bool:
        """Whether trials may go on from each other's checkpoints."""
        return bool(self._call(lambda: self.scheduler.copies))

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""
        match fact:
            case Paused(trial):
                self.running.discard(trial)
                self.paused.add(trial)
            case Ordered(trial=trial):
                self.paused.discard(trial)
                self.running.add(trial)
                self.known.add(trial)
            case Left(trial):
                self.paused.discard(trial)
                self.running.discard(trial)
        self._call(lambda: self.scheduler.apply(fact))

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        """Return what to run on a free slot."""
        move = self._call(self.scheduler.next)
        if not isinstance(move, MOVES):
            raise self._wrong("next", move, "NewTrial, Advance, Wait or SearchDone")
        if isinstance(move, Wait) and not self.running:
            wanted = "SearchDone, NewTrial or an Advance where no trial runs: nothing can change"
            raise self._wrong("next", move, wanted)
        if isinstance(move, Advance) and move.trial not in self.paused:
            raise self._wrong("next", move, "an Advance of a paused trial")
        if isinstance(move, NewTrial | Advance):
            steps = [*move.milestones] if move.until is None else [*move.milestones, move.until]
            last = self.plan.until
            too_long = last is not None and (move.until is None or move.until > last)
            if too_long or not all(type(step) is int and step > 0 for step in steps):
                raise self._wrong("next", move, f"whole steps of 1 to {last}")
        if isinstance(move, Advance) and move.change is not None:
            return replace(move, change=self._guard_change(move, move.change))
        return move

    def judge(self, report: Report) -> Decision:
        """Decide whether the trial that reported at a milestone goes on."""
        decision = self._call(lambda: self.scheduler.judge(report))
        if not isinstance(decision, Decision) or decision.verdict not in VERDICTS:
            raise self._wrong("judge", decision, f"a Decision: {', '.join(VERDICTS)}")
        return decision

    def trials_to_stop(self) -> Sequence[TrialStop]:
        """Return the paused trials to stop now."""
        stops = self._call(self.scheduler.trials_to_stop)
        for stop in stops if isinstance(stops, Sequence) else [stops]:
            if not isinstance(stop, TrialStop) or stop.trial not in self.paused:
                raise self._wrong("trials_to_stop", stop, "a TrialStop of a paused trial")
        return stops

    def max_concurrency(self) -> int:
        """Return how many orders can run at once from now on."""
        width = self._call(self.scheduler.max_concurrency)
        if type(width) is not int or width < 0:
            raise self._wrong("max_concurrency", width, "a whole number")
        return width

    def _guard_change(self, move: Advance, change: Change) -> Change:
        """Return the change, whose values are held to the space."""
        donor = self._call(lambda: change.donor)
        if donor is not None and donor not in self.known:
            raise self._wrong("next", move, "a change whose donor is None, or a trial that ran")

        def values(space: Space, params: Params, rng: Generator) -> Params:
            new = self._call(lambda: change.values(space, params, rng))
            try:
                space.validate(new)
            except (SpaceError, TypeError) as error:
                raise self._wrong("values of a change", new, f"a configuration: {error}") from error
            return new

        return _GuardedChange(donor, values)

    def _call(self, method: Callable[[], T]) -> T:
        try:
            return method()
        except (Exception, SystemExit) as error:
            raise plug_in_raised(self.name, self.scheduler, error) from error

    def _wrong(self, method: str, answer: object, wanted: str) -> PlugInFailed:
        problem = f"returns {answer!r} from {method}; return {wanted}"
        return wrong_plug_in_answer(self.name, self.scheduler, problem)
