"""Population based training: weak members go on from a strong one's weights, with other values.

All `trials.max` trials are the population. Each is ranked every `interval` steps of its own clock,
by its loss there among the last such losses of the others. One of the worst `quantile` copies one
of the best `quantile`, drawn uniformly: it goes on from that one's newest checkpoint with its
values, of which those that `mutate` names are moved (mutation.py), and keeps its own clock.

What the paper leaves open:

* Members do not wait for each other (the paper's partial synchrony). More members than slots take
  turns of one interval, lowest clock first, so that they are compared at about the same step; those
  that copy go first, while the donor stands where it was ranked. Of fewer, slots stay empty.
* Nobody copies before 1/quantile of the members, or all that are left, have a rank. At least one
  is weak then, but only one whose loss is strictly worse than those that it may copy.
* A member that completed keeps its rank and may be copied. One that left before (failed, stopped,
  diverged) is out of the population.
* Steps below `fidelity.min` are no ranking steps.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), §3 (exploit and
explore) and §4.1.1 (truncation selection).
"""

import math
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from hposvc.reading.problems import Problem, no_such
from hposvc.schedulers.mutation import explore, read_move
from hposvc.schedulers.scheduler import (
    Advance,
    Change,
    Decision,
    Fact,
    Left,
    NewTrial,
    Opened,
    Ordered,
    Over,
    Paused,
    Plan,
    Reopened,
    Report,
    Running,
    Scheduler,
    Wait,
)
from searchers.space import Space
from searchers.values import Params, SpaceError

DONORS = 2  # tells the generators of donors from others of the sweep's seed
ROUNDING = 1e-9  # 0.29 * 100 is less than 29


@dataclass(frozen=True)
class Pbt:
    """Truncation selection on a population whose members train side by side."""

    interval: int  # steps between two rankings of a member
    mutate: dict[str, object]  # what may change, and how: see mutation.py
    quantile: float = 0.2  # the share that copies, and the share that is copied
    resample: float = 0.25  # the chance that a value is drawn afresh (Ray Tune's default)
    name: ClassVar[str] = "pbt"  # in a spec
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise ValueError(f"interval is {self.interval}; choose a number of steps from 1 up")
        if not 0 < self.quantile <= 0.5:
            raise ValueError(f"quantile is {self.quantile}; choose a share in (0, 0.5]")
        if not 0 <= self.resample <= 1:
            raise ValueError(f"resample is {self.resample}; choose a chance in [0, 1]")
        if not self.mutate:
            raise ValueError("mutate is empty; name the parameters that may change")

    def scheduler(self, plan: Plan) -> Scheduler:
        """A population of `plan.trials` members."""
        return Population(self, plan, self.steps(plan))

    def steps(self, plan: Plan) -> range:
        """At which members are ranked."""
        first = self.interval * math.ceil(plan.first / self.interval)
        return range(first, plan.last, self.interval)

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """What of it does not fit the sweep; paths are from the spec's top."""
        if plan.metrics > 1:
            message = (
                f"is {self.name}, which ranks members by one metric, and there are {plan.metrics}"
            )
            remedy = "choose asha, hyperband, median or fifo"
            yield Problem(("scheduler", "type"), f"{message}; {remedy}")
        if plan.trials is None or plan.trials < 2:
            found = "is missing" if plan.trials is None else f"is {plan.trials}"
            message = (
                f"{found}; scheduler {self.name} takes it for the population, so give 2 or more"
            )
            yield Problem(("trials", "max"), message, at_key=plan.trials is None)
        if not self.steps(plan):
            steps = f"steps {plan.first} to {plan.last - 1}, where members are ranked"
            message = f"is {self.interval}, and no multiple of it is among {steps}; give fewer"
            yield Problem(("scheduler", "interval"), message)
        for name, declared in self.mutate.items():
            where = ("scheduler", "mutate", name)
            if name not in space:
                yield Problem(where, no_such("parameter", name, space), at_key=True)
                continue
            try:
                read_move(space[name], declared)
            except SpaceError as error:
                yield Problem((*where, *error.path), error.message)


@dataclass(frozen=True)
class Exploit:
    """Go on from the donor's weights, with its values moved."""

    donor: str
    policy: Pbt

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """The donor's values, explored."""
        moves = {name: read_move(space[name], how) for name, how in self.policy.mutate.items()}
        return explore(space, params, moves, self.policy.resample, rng)


@dataclass
class Population(Running):
    """The members, their ranks, and who copies whom."""

    policy: Pbt
    plan: Plan
    steps: range  # at which members are ranked, but for the last
    ranked: list[tuple[float, str]] = field(default_factory=list)  # ascending by loss
    losses: dict[str, float] = field(default_factory=dict)  # of the ranked
    clocks: dict[str, int] = field(default_factory=dict)  # last ranking step of all that began
    paused: list[tuple[int, bool, str]] = field(default_factory=list)  # see `_turn`; ascending
    donors: dict[str, str] = field(default_factory=dict)  # of members that are to copy
    gone: set[str] = field(default_factory=set)  # members that left before their end

    copies = True

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Ordered():
                self._unpause(fact.trial)
                self.clocks.setdefault(fact.trial, 0)
            case Report():
                self._rank(fact)
            case Paused():
                insort(self.paused, self._turn(fact.trial))
            case Left():
                self._leave(fact.trial)
            case Opened(plan=plan):
                self.plan, self.steps = plan, self.policy.steps(plan)
            case Reopened():
                self._return(fact)

    def next(self) -> NewTrial | Advance | Wait | Over:
        if self._unborn:
            return NewTrial(self.plan.last, tuple(self.steps))
        if not self.paused:
            return self.rest()
        clock, _, trial = self.paused[0]
        donor = self._donor(trial, clock)
        change = None if donor is None else self.change(trial, donor)
        ahead = self.steps[bisect_right(self.steps, clock) :]
        return Advance(trial, self.plan.last, tuple(ahead), change)

    def change(self, trial: str, donor: str) -> Change:
        """What becomes of the values of a member that copies another."""
        return Exploit(donor, self.policy)

    def judge(self, report: Report) -> Decision:
        better = bisect_left(self.ranked, (report.loss, ""))
        place = f"place {better + 1} of {len(self.ranked)} at step {report.step}"
        if report.trial in self.donors:
            return Decision("pause", "exploit", f"{place}, copies {self.donors[report.trial]}")
        if self._unborn:
            return Decision("pause", "turn", f"{place}; others have not begun")
        if self.paused and self.paused[0][0] <= report.step:
            clock, _, other = self.paused[0]
            return Decision("pause", "turn", f"{place}; {other} waits at step {clock}")
        return Decision("continue", "rank", place)

    def width(self) -> int:
        """All members that are not over."""
        return len(self.running) + len(self.paused)

    def is_rank(self, step: int) -> bool:
        """Whether members are ranked there."""
        return step == self.plan.last or step in self.steps

    @property
    def _unborn(self) -> bool:
        """Whether members are still to come."""
        return not self.closed and len(self.clocks) < (self.plan.trials or 0)

    def _rank(self, report: Report) -> None:
        """Give the member its new rank, and a donor if it is weak."""
        trial, step, loss = report.trial, report.step, report.loss
        if math.isinf(loss):
            self._unrank(trial)  # it diverged, and so did what might be copied of it
            return
        if not self.is_rank(step):
            return
        self._unrank(trial)
        self.losses[trial], self.clocks[trial] = loss, step
        insort(self.ranked, (loss, trial))
        better = bisect_left(self.ranked, (loss, ""))
        if step != self.plan.last and better >= len(self.ranked) - self._share():
            self.donors[trial] = self._draw(trial, step)

    def _share(self) -> int:
        """How many are weak, and how many strong; 0 while too few are ranked."""
        count, quantile = len(self.ranked), self.policy.quantile
        members = len(self.clocks) if self.closed else self.plan.trials or 0
        enough = min(math.ceil(1 / quantile - ROUNDING), members - len(self.gone))
        if count < max(2, enough):
            return 0
        return max(1, math.floor(quantile * count + ROUNDING))

    def _draw(self, trial: str, step: int) -> str:
        """One of the strong."""
        rng = np.random.default_rng([self.plan.seed, DONORS, zlib.crc32(trial.encode()), step])
        return self.ranked[int(rng.integers(self._share()))][1]

    def _donor(self, trial: str, step: int) -> str | None:
        """Whom the member copies now; None: nobody.

        A donor that left or diverged since is replaced, unless nobody better is left.
        """
        donor = self.donors.get(trial)
        if donor is None or donor in self.losses:
            return donor
        donor = self._draw(trial, step) if self._share() else trial
        return donor if self.losses[donor] < self.losses[trial] else None

    def _leave(self, trial: str) -> None:
        self._unpause(trial)
        if self.clocks.setdefault(trial, 0) < self.plan.last or trial not in self.losses:
            self._unrank(trial)
            self.gone.add(trial)

    def _return(self, fact: Reopened) -> None:
        """A member is back: one that had failed runs on, one that was done may train for longer."""
        self.gone.discard(fact.trial)
        if fact.report is not None and math.isfinite(fact.report.loss):
            self._unrank(fact.trial)
            self.losses[fact.trial] = fact.report.loss
            insort(self.ranked, (fact.report.loss, fact.trial))
        if not fact.failed:
            insort(self.paused, self._turn(fact.trial))

    def _unrank(self, trial: str) -> None:
        loss = self.losses.pop(trial, None)
        if loss is not None:
            del self.ranked[bisect_left(self.ranked, (loss, trial))]

    def _turn(self, trial: str) -> tuple[int, bool, str]:
        """When it is the member's turn: the lowest clock first, of those who copies first."""
        return self.clocks.get(trial, 0), trial not in self.donors, trial

    def _unpause(self, trial: str) -> None:
        """It no longer waits, nor has a copy before it."""
        turn = self._turn(trial)
        place = bisect_left(self.paused, turn)
        if self.paused[place : place + 1] == [turn]:
            del self.paused[place]
        self.donors.pop(trial, None)
