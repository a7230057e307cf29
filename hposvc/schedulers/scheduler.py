"""The interface of schedulers: the facts they receive, the moves they ask for, their decisions.

A scheduler knows trials by name, step and loss (lower is better; the losses of a diverged trial
are infinite). Parameters, checkpoints, retries and clocks belong to the controller. The state of a
scheduler changes in `apply` alone, so replaying a journal rebuilds it; every other method only
reads the state, at constant cost (or the logarithm of a rung's size).

The facts are five: Ordered, Report, Paused, Left and Closed. Left and Closed are final. If a user
extends a sweep or retries its trials, the controller replaces the scheduler by a new one over the
present plan, and repeats all facts to it in their order, without those that hold no longer: a
retried trial has not left but was slow, a completed trial that can become longer has paused, and a
sweep that takes new trials is not closed. So a new scheduler may hear that trials were ordered
that it would not have chosen, and follows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from numpy.random import Generator

from hposvc.errors import Problem
from searchers import Params, Space

FIRST_PART = 20  # a trial is first judged after a 20th of it, if neither spec nor rungs say when


@dataclass(frozen=True)
class Plan:
    """The properties of a sweep that its scheduler needs."""

    first: int  # step of the first rung
    until: int | None  # step at which a trial is over; None: where its trainable returns
    trials: int | None = None  # number of trials in total; None: as many as the budget allows
    seed: int = 0
    metrics: int = 1  # number of metrics that trials are judged by

    @property
    def last(self) -> int:
        """The step at which a trial is over; a sweep sets it unless its policy has `any_length`."""
        assert self.until is not None  # the spec's rules see to it
        return self.until


@dataclass(frozen=True)
class Ordered:
    """The trial was ordered to run up to `until`: as a new trial, an advance, or a retry."""

    trial: str
    until: int | None
    # The trial's values, and the trial that it copies, if any; most schedulers look at neither.
    params: Params = field(default_factory=dict, compare=False)
    parent: str | None = field(default=None, compare=False)

    @property
    def last(self) -> int:
        """The step `until`, in a sweep that sets the length of its trials."""
        assert self.until is not None  # the spec's rules see to it
        return self.until


@dataclass(frozen=True, slots=True)
class Report:
    """The first report of a trial at a step."""

    trial: str
    step: int
    loss: float
    losses: tuple[float, ...] = ()  # one per metric, `loss` first; empty if there is one metric

    @property
    def vector(self) -> tuple[float, ...]:
        """The losses of the report, one per metric."""
        return self.losses or (self.loss,)


@dataclass(frozen=True)
class Paused:
    """The trial reached the `until` of its order, before the end, and keeps its checkpoint."""

    trial: str


@dataclass(frozen=True)
class Left:
    """The trial is over: completed, stopped or failed."""

    trial: str


@dataclass(frozen=True)
class Closed:
    """There will be no new trials."""


Fact = Ordered | Report | Paused | Left | Closed


@dataclass(frozen=True)
class NewTrial:
    """Run a new trial up to `until`; at each step of `milestones` its ranks wait for `judge`."""

    until: int | None
    milestones: tuple[int, ...] = ()


class Change(Protocol):
    """A change of values with which a paused trial goes on."""

    @property
    def donor(self) -> str | None:
        """The trial from whose newest checkpoint this trial goes on; None: from its own."""

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """Return the new values, given the `params` of the trial that wrote the checkpoint."""


@dataclass(frozen=True)
class Advance:
    """Run a paused trial on, up to `until`; its steps count on even if its values change."""

    trial: str
    until: int | None
    milestones: tuple[int, ...] = ()
    change: Change | None = None


@dataclass(frozen=True)
class Wait:
    """There is nothing to run until the next fact."""


@dataclass(frozen=True)
class SearchDone:
    """There will never be anything to run again."""


@dataclass(frozen=True)
class Decision:
    """The answer to a report at a milestone: `reason` is a word, `detail` the figures behind it.

    A paused trial gives up its slot, keeps its checkpoint, and may be advanced.
    """

    verdict: Literal["continue", "pause", "stop"]
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class TrialStop:
    """A paused trial that will never go on: `reason` is a word, `detail` the figures behind it."""

    trial: str
    reason: str
    detail: str = ""


class Scheduler(Protocol):
    """A policy at work in one sweep: decides which trials go on, and for how long."""

    @property
    def copies(self) -> bool:
        """Whether trials may go on from each other's checkpoints, so that all must write some."""

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        """Return what to run on a free slot."""

    def judge(self, report: Report) -> Decision:
        """Decide whether the trial that reported at a milestone goes on."""

    def trials_to_stop(self) -> Sequence[TrialStop]:
        """Return the paused trials to stop now; each is returned again until it has left."""

    def max_concurrency(self) -> int:
        """Return how many orders can run at once from now on, if there are no new trials."""


class Policy(Protocol):
    """The options of a scheduler as the spec gives them; a frozen dataclass.

    Attributes say what it is like. `revision` (1 if there is none) grows whenever the same facts
    lead to other moves than before, so that a driver can say that it decides by other rules than
    the last one. `simulated_as` names a scheduler of the same options and moves whose values cost
    less to choose. False if there is none: `any_length` (a sweep need not say how long a trial is),
    `fixed_length` (an extended sweep cannot have longer trials), `needs_model` (the search method
    must learn from results), `compares_across_steps` (trials are compared at different steps),
    `ends_steadily` (trials end one after another, so that ended ones show how far trials come),
    `promotes` (one in `eta` of a rung's trials goes on, each as soon as it is among the best),
    `keeps_all` (no trial ends for its values), `changes_values` (a trial may go on with other
    values).
    """

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a scheduler for one sweep."""


@runtime_checkable
class Demanding(Protocol):
    """A policy that does not suit every sweep."""

    def problems(self, space: Space, plan: Plan) -> Iterable[Problem]:
        """Yield what does not suit the sweep; paths start at the top of the spec."""


MOST_JUDGEMENTS = 10_000  # of a trial: its first order names the step of each


def judgement_problems(interval: int, plan: Plan) -> Iterable[Problem]:
    """Check that a trial is not judged too often; paths start at the top of the spec."""
    length = plan.last - plan.first
    if length > MOST_JUDGEMENTS * interval:
        message = f"is {interval}, so a trial is judged {length // interval:,} times"
        least = -(-length // MOST_JUDGEMENTS)
        yield Problem(("scheduler", "interval"), message, f"give {least:,} or more")


@runtime_checkable
class WithRungs(Protocol):
    """A policy that compares trials at few steps, each a factor `eta` beyond the one before."""

    def rungs(self, plan: Plan) -> tuple[int, ...]:
        """Return these steps, and the last step of a trial."""


@runtime_checkable
class Choosing(Protocol):
    """A policy that chooses what a spec leaves out; what it chose is recorded with the sweep."""

    def first_rung(self, plan: Plan) -> int:
        """Return the first step at which trials are compared."""

    def missing_options(self, plan: Plan, resumes: bool) -> Mapping[str, str | float]:
        """Return values of the options that are left out.

        Args:
            resumes: whether trials go on from their checkpoints without code of the user's.
        """


@runtime_checkable
class Describing(Protocol):
    """A policy that says what it will do, for people."""

    def describe(self, plan: Plan, unit: str) -> str:
        """Say how weak trials end, and from which step on they are judged."""


@runtime_checkable
class Repeating(Protocol):
    """A policy that repeats the training of other trials."""

    def seeded_as(self, step: int) -> str | None:
        """Return the trial whose random numbers an order from `step` on draws; None: its own."""


@runtime_checkable
class Copying(Protocol):
    """A policy whose trials go on from other trials' checkpoints."""

    def explain_no_copies(self, plan: Plan, steps: Sequence[int]) -> str:
        """Say why no trial of an ended sweep copied another, and what makes copies likely.

        Args:
            steps: the last step of each trial.
        """


@dataclass
class Running:
    """The state common to all schedulers: which trials run, and whether new ones may come."""

    running: set[str] = field(default_factory=set, kw_only=True)
    closed: bool = field(default=False, kw_only=True)

    copies = False

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""
        match fact:
            case Ordered():
                self.running.add(fact.trial)
            case Paused() | Left():
                self.running.discard(fact.trial)
            case Closed():
                self.closed = True

    def trials_to_stop(self) -> Sequence[TrialStop]:
        """Return no trials: by default every paused trial may go on."""
        return ()

    def max_concurrency(self) -> int:
        """Return the number of running trials."""
        return len(self.running)

    def idle_move(self) -> Wait | SearchDone:
        """Return the move of a scheduler with nothing to run: wait, or end the search."""
        return Wait() if self.running else SearchDone()


def rungs(first: int, last: int, eta: int) -> tuple[int, ...]:
    """Return the steps first, first*eta, first*eta^2, … below `last`, and `last`.

    Source: Jamieson 2016, §3.
    """
    steps = []
    while first < last:
        steps.append(first)
        first *= eta
    return (*steps, last)
