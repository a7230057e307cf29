"""What a scheduler is told, what it may ask for, and what it answers.

A scheduler knows trials by their names, steps and losses (lower is better; a diverged trial's are
infinite). Parameters, checkpoints, retries and clocks are the controller's. Its state changes in
`apply` alone, so replaying a journal rebuilds it; all else only looks, at constant cost (or the
logarithm of a rung).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from numpy.random import Generator

from hposvc.reading.problems import Problem
from searchers.space import Params, Space


@dataclass(frozen=True)
class Plan:
    """What a scheduler must know of the sweep."""

    first: int  # step of the first rung
    last: int  # step at which a trial is over
    trials: int | None = None  # how many there will be; None: as many as the budget allows
    seed: int = 0
    metrics: int = 1  # that trials are judged by


@dataclass(frozen=True)
class Ordered:
    """The trial was ordered to run up to `until`: a new one, an advance, or a retry."""

    trial: str
    until: int
    # Its values; most schedulers never look at them.
    params: Params = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Report:
    """The first report of a trial at a step."""

    trial: str
    step: int
    loss: float
    losses: tuple[float, ...] = ()  # of several metrics, of which `loss` is the first; else empty

    @property
    def vector(self) -> tuple[float, ...]:
        """A loss for each metric."""
        return self.losses or (self.loss,)


@dataclass(frozen=True)
class Paused:
    """The trial reached its order's `until`, below the end, and keeps its checkpoint."""

    trial: str


@dataclass(frozen=True)
class Left:
    """The trial is over: completed, stopped or failed."""

    trial: str


@dataclass(frozen=True)
class Halted:
    """The sweep was ended with the trial on its way; it goes on if that is taken back."""

    trial: str


@dataclass(frozen=True)
class Closed:
    """There will be no new trials."""


@dataclass(frozen=True)
class Opened:
    """Somebody moved a limit of the sweep: there may be new trials again, or longer ones."""

    plan: Plan


@dataclass(frozen=True)
class Reopened:
    """A trial that had left is back.

    One that failed is about to be ordered again. One that completed stays as it is unless it is
    advanced, now that trials are longer.
    """

    trial: str
    report: Report | None  # its last one; None: it had none
    failed: bool = False


Fact = Ordered | Report | Paused | Left | Halted | Closed | Opened | Reopened


@dataclass(frozen=True)
class NewTrial:
    """Run a new trial up to `until`; at `milestones` its ranks wait for `judge`."""

    until: int
    milestones: tuple[int, ...] = ()


class Change(Protocol):
    """What becomes of a trial that goes on with other values."""

    @property
    def donor(self) -> str | None:
        """The trial whose newest checkpoint it goes on from; None: its own."""

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """The values that it goes on with, from those of the trial that the checkpoint is of."""


@dataclass(frozen=True)
class Advance:
    """Run a paused trial on, up to `until`; its clock goes on whatever changes."""

    trial: str
    until: int
    milestones: tuple[int, ...] = ()
    change: Change | None = None


@dataclass(frozen=True)
class Wait:
    """Nothing to run until something happens."""


@dataclass(frozen=True)
class Over:
    """Nothing will ever be run again."""


@dataclass(frozen=True)
class Decision:
    """The answer to a report at a milestone: why in a word, and what it was made from.

    A trial that is paused gives its slot up, keeps its checkpoint, and may be advanced.
    """

    verdict: Literal["continue", "pause", "stop"]
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Cut:
    """A paused trial that will never go on: why in a word, and what that was made from."""

    trial: str
    reason: str
    detail: str = ""


class Scheduler(Protocol):
    """Decides which trials go on."""

    @property
    def copies(self) -> bool:
        """Whether trials go on from each other's checkpoints, so that each must write some."""

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""

    def next(self) -> NewTrial | Advance | Wait | Over:
        """What to run on a free slot."""

    def judge(self, report: Report) -> Decision:
        """Whether the trial that stands at a milestone goes on."""

    def cut(self) -> Sequence[Cut]:
        """The paused trials that are to be stopped now; told until they have left."""

    def width(self) -> int:
        """How many orders may be out at once from here on, if there are no new trials."""


class Policy(Protocol):
    """A scheduler's options as the spec gives them; a frozen dataclass."""

    def scheduler(self, plan: Plan) -> Scheduler:
        """A scheduler for one sweep."""


@runtime_checkable
class Demanding(Protocol):
    """A policy that does not suit every sweep."""

    def problems(self, space: Space, plan: Plan) -> Iterable[Problem]:
        """What does not fit; paths are from the spec's top."""


@runtime_checkable
class Repeating(Protocol):
    """A policy that does again what other trials did."""

    def seeded_as(self, step: int) -> str | None:
        """The trial whose random numbers an order draws that begins there; None: its own."""


@dataclass
class Running:
    """What every scheduler knows: which trials run, and whether there will be new ones."""

    running: set[str] = field(default_factory=set, kw_only=True)
    closed: bool = field(default=False, kw_only=True)

    copies = False

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""
        match fact:
            case Ordered():
                self.running.add(fact.trial)
            case Paused() | Left() | Halted():
                self.running.discard(fact.trial)
            case Closed():
                self.closed = True
            case Opened():
                self.closed = False

    def cut(self) -> Sequence[Cut]:
        """Nothing waits in vain."""
        return ()

    def width(self) -> int:
        """As many as run."""
        return len(self.running)

    def rest(self) -> Wait | Over:
        """What is left to do when there is nothing to run."""
        return Wait() if self.running else Over()


def rungs(first: int, last: int, eta: int) -> tuple[int, ...]:
    """The steps first, first*eta, first*eta^2, … below `last`, and `last` (Jamieson 2016, §3)."""
    steps = []
    while first < last:
        steps.append(first)
        first *= eta
    return (*steps, last)
