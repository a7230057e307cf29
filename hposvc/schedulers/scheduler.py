"""What a scheduler is told, what it may ask for, and what it answers.

A scheduler knows trials by their names, steps and losses (lower is better; a diverged trial's is
infinite). Parameters, checkpoints, retries and clocks are the controller's. Its state changes in
`apply` alone, so replaying a journal rebuilds it; `next` and `judge` only look, at constant cost
(or the logarithm of a rung).
"""

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Ordered:
    """The trial was ordered to run up to `until`: a new one, an advance, or a retry."""

    trial: str
    until: int


@dataclass(frozen=True)
class Report:
    """The first report of a trial at a step."""

    trial: str
    step: int
    loss: float


@dataclass(frozen=True)
class Paused:
    """The trial reached its order's `until`, below the end, and keeps its checkpoint."""

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
    """Run a new trial up to `until`; at `milestones` its ranks wait for `judge`."""

    until: int
    milestones: tuple[int, ...] = ()


@dataclass(frozen=True)
class Advance:
    """Run a paused trial on, up to `until`."""

    trial: str
    until: int
    milestones: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wait:
    """Nothing to run until something happens."""


@dataclass(frozen=True)
class Over:
    """Nothing will ever be run again."""


@dataclass(frozen=True)
class Decision:
    """The answer to a report at a milestone: why in a word, and what it was made from."""

    verdict: Literal["continue", "stop"]
    reason: str
    detail: str = ""


class Scheduler(Protocol):
    """Decides which trials go on."""

    def apply(self, fact: Fact) -> None:
        """Take note of what happened."""

    def next(self) -> NewTrial | Advance | Wait | Over:
        """What to run on a free slot."""

    def judge(self, report: Report) -> Decision:
        """Whether the trial that stands at a milestone goes on."""


class Policy(Protocol):
    """A scheduler's options as the spec gives them; a frozen dataclass."""

    def scheduler(self, first: int, last: int) -> Scheduler:
        """A scheduler for trials whose first rung is `first` and whose end is `last` (steps)."""


def rungs(first: int, last: int, eta: int) -> tuple[int, ...]:
    """The steps first, first*eta, first*eta^2, … below `last`, and `last` (Jamieson 2016, §3)."""
    steps = []
    while first < last:
        steps.append(first)
        first *= eta
    return (*steps, last)
