"""Population based training (PBT): weak members go on from a strong member's weights.

All `trials.max` trials are the population. Each member has a clock, the step of its last ranking.
Every `interval` steps a member is ranked by its loss among the last ranked losses of the others. A
member among the worst `quantile` copies a donor, drawn uniformly from the best `quantile`: it goes
on from the donor's newest checkpoint with the donor's values, of which those that `mutate` names
are moved (pbt_mutation.py), and keeps its own clock.

Choices that the paper leaves open:

* Members do not wait for each other (the paper's partial synchrony). If there are more members than
  slots, members take turns of one interval, lowest clock first, so that they are compared at about
  the same step. Among equal clocks members that copy go first, while the donor is still where it
  was ranked. If there are fewer members than slots, slots stay empty.
* No member copies before 1/quantile of the members, or all members left, have a rank. From then on
  at least one member is weak, but only if its loss is strictly worse than those it may copy.
* A member that completed keeps its rank and may be copied. A member that left before its end
  (failed, stopped, diverged) is out of the population.
* Members are not ranked at steps below `fidelity.min` or `burn_in`.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), §3 (exploit and
explore) and §4.1.1 (truncation selection).
"""

import math
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from hposvc.errors import Problem
from hposvc.schedulers.pbt_mutation import explore, members, read_moves
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
    Report,
    Running,
    Scheduler,
    SearchDone,
    Wait,
    judgement_problems,
)
from searchers import STEPS, AtMost, Params, Space, SpaceError, nearest

DONORS = 2  # sets the random numbers that draw donors apart from others of the sweep's seed
ROUNDING = 1e-9  # 0.29 * 100 is less than 29


@dataclass(frozen=True)
class Pbt:
    """Truncation selection on a population whose members train side by side."""

    interval: Annotated[int, AtMost(STEPS)]  # steps between two rankings of a member
    mutate: dict[str, object]  # how each parameter may change: see pbt_mutation.py
    quantile: float = 0.2  # the share that copies, and the share that is copied
    resample: float = 0.25  # the chance that a value is drawn afresh (Ray Tune's default)
    burn_in: Annotated[int, AtMost(STEPS)] = 0  # steps before the first ranking: nobody copies
    changes_values: ClassVar[bool] = True
    name: ClassVar[str] = "pbt"  # in a spec
    keeps_all: ClassVar[bool] = True
    compares_across_steps: ClassVar[bool] = True  # members are ranked at different steps
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise ValueError(f"interval is {self.interval}; choose a number of steps from 1 up")
        if self.burn_in < 0:
            raise ValueError(f"burn_in is {self.burn_in}; choose a number of steps from 0 up")
        if not 0 < self.quantile <= 0.5:
            raise ValueError(f"quantile is {self.quantile}; choose a share in (0, 0.5]")
        if not 0 <= self.resample <= 1:
            raise ValueError(f"resample is {self.resample}; choose a chance in [0, 1]")
        if not self.mutate:
            raise ValueError("mutate is empty; name the parameters that may change")

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a population of `plan.trials` members."""
        return Population(self, plan, self.steps(plan))

    def steps(self, plan: Plan) -> range:
        """Return the steps at which members are ranked, but for the last step."""
        first = self.interval * math.ceil(max(plan.first, self.burn_in) / self.interval)
        return range(first, plan.last, self.interval)

    def explain_no_copies(self, plan: Plan, steps: Sequence[int]) -> str:
        """Say why no member of an ended population copied another, and what makes copies likely."""
        first, members = self.steps(plan)[0], len(steps)
        ranked = sum(step >= first for step in steps)
        needed = min(math.ceil(1 / self.quantile), plan.trials or members)
        if ranked < needed:
            why = (
                f"copies begin once {needed} members are ranked at step {first}, and {ranked} were"
            )
        else:
            why = "no member was ranked among the worst while a better one had a checkpoint to copy"
        return (
            f"no member of the population of {members} copied another, so {self.name} trained "
            f"each by itself: {why}; more members, or a smaller interval, make copies likely"
        )

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """Yield the options that do not fit the sweep; paths start at the top of the spec."""
        if plan.metrics > 1:
            message = (
                f"is {self.name}, which ranks members by one metric, and there are {plan.metrics}"
            )
            remedy = "choose asha, hyperband, median or fifo"
            yield Problem(("scheduler", "type"), message, remedy)
        if plan.trials is None or plan.trials < 2:
            value = "is missing" if plan.trials is None else f"is {plan.trials}"
            fix = f"scheduler {self.name} takes it for the population, so give 2 or more"
            yield Problem(("trials", "max"), f"{value}", fix, at_key=plan.trials is None)
        if not self.steps(plan):
            first = max(plan.first, self.burn_in)
            steps = f"steps {first} to {plan.last - 1}, where members are ranked"
            message = f"is {self.interval}, and no multiple of it is among {steps}"
            fix = "give fewer, or a smaller burn_in" if self.burn_in else "give fewer"
            yield Problem(("scheduler", "interval"), message, fix)
        yield from judgement_problems(self.interval, plan)
        for name, declared in self.mutate.items():
            path = ("scheduler", "mutate", name)
            if not space.keys() >= {*members(space, name)}:
                yield Problem(path, "no such parameter", nearest(name, space), at_key=True)
                continue
            try:
                read_moves(space, {name: declared})
            except SpaceError as error:
                yield Problem.of_text(error.message, *path, *error.path)


@dataclass(frozen=True)
class Exploit:
    """Go on from the donor's weights, with the donor's values moved."""

    donor: str
    policy: Pbt

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """Return the donor's values, with those that may change moved or drawn afresh."""
        moves = read_moves(space, self.policy.mutate)
        return explore(space, params, moves, self.policy.resample, rng)


@dataclass
class Population(Running):
    """The members of a population, their ranks, and the donors that weak members copy."""

    policy: Pbt
    plan: Plan
    steps: range  # at which members are ranked, but for the last
    ranked: list[tuple[float, str]] = field(default_factory=list)  # ascending by loss
    losses: dict[str, float] = field(default_factory=dict)  # of the ranked members
    clocks: dict[str, int] = field(default_factory=dict)  # last ranking step of each member begun
    paused: list[tuple[int, bool, str]] = field(default_factory=list)  # `_turn_key`s, ascending
    donors: dict[str, str] = field(default_factory=dict)  # the donor of each member about to copy
    gone: set[str] = field(default_factory=set)  # members that left before their end

    copies = True

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Ordered():
                self._unpause(fact.trial)
                self.clocks.setdefault(fact.trial, 0)
            case Report():
                self._update_rank(fact)
            case Paused():
                insort(self.paused, self._turn_key(fact.trial))
            case Left(trial=trial):
                self._unpause(trial)
                if self.clocks.setdefault(trial, 0) < self.plan.last or trial not in self.losses:
                    self._unrank(trial)
                    self.gone.add(trial)

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        if self._awaits_members:
            return NewTrial(self.plan.last, tuple(self.steps))
        if not self.paused:
            return self.idle_move()
        clock, _, trial = self.paused[0]
        donor = self._donor(trial, clock)
        change = None if donor is None else self.change(trial, donor)
        ahead = self.steps[bisect_right(self.steps, clock) :]
        return Advance(trial, self.plan.last, tuple(ahead), change)

    def change(self, trial: str, donor: str) -> Change:
        """Return how the values change when a member copies a donor."""
        return Exploit(donor, self.policy)

    def judge(self, report: Report) -> Decision:
        better = bisect_left(self.ranked, (report.loss, ""))
        rank = f"rank {better + 1} of {len(self.ranked)} at step {report.step}"
        if report.trial in self.donors:
            return Decision("pause", "exploit", f"{rank}, copies {self.donors[report.trial]}")
        if self._awaits_members:
            return Decision("pause", "turn", f"{rank}; others have not begun")
        if self.paused and self.paused[0][0] <= report.step:
            clock, _, other = self.paused[0]
            return Decision("pause", "turn", f"{rank}; {other} waits at step {clock}")
        return Decision("continue", "rank", rank)

    def max_concurrency(self) -> int:
        """Return the number of members that are not over."""
        return len(self.running) + len(self.paused)

    def is_ranking_step(self, step: int) -> bool:
        """Return whether members are ranked at this step."""
        return step == self.plan.last or step in self.steps

    @property
    def _awaits_members(self) -> bool:
        """Whether members of the population have not begun yet."""
        return not self.closed and len(self.clocks) < (self.plan.trials or 0)

    def _update_rank(self, report: Report) -> None:
        """Give the member its new rank, and a donor if it is weak."""
        trial, step, loss = report.trial, report.step, report.loss
        if math.isinf(loss):
            self._unrank(trial)  # the member diverged, and so did the weights to copy from it
            return
        if not self.is_ranking_step(step):
            return
        self._unrank(trial)
        self.losses[trial], self.clocks[trial] = loss, step
        insort(self.ranked, (loss, trial))
        if step != self.plan.last:
            self._choose_donor(trial, step)

    def _choose_donor(self, trial: str, step: int) -> None:
        """Give a member that was just ranked a donor, if it is weak."""
        better = bisect_left(self.ranked, (self.losses[trial], ""))
        if better >= len(self.ranked) - self._quantile_size():
            self.donors[trial] = self._draw_donor(trial, step)

    def _quantile_size(self) -> int:
        """Return how many members are weak, and how many strong; 0 while too few are ranked."""
        members = len(self.clocks) if self.closed else self.plan.trials or 0
        return self._share(len(self.ranked), members - len(self.gone))

    def _share(self, ranked: int, left: int) -> int:
        """Return how many of so many ranked members are strong, where so many are left in all."""
        enough = min(math.ceil(1 / self.policy.quantile - ROUNDING), left)
        if ranked < max(2, enough):
            return 0
        return max(1, math.floor(self.policy.quantile * ranked + ROUNDING))

    def _draw_donor(self, trial: str, step: int) -> str:
        """Draw one of the strong members as the donor of a trial."""
        return self._pick(trial, step, [name for _, name in self.ranked[: self._quantile_size()]])

    def _pick(self, trial: str, step: int, strong: Sequence[str]) -> str:
        """Return one of the strong members; the same one whenever this is asked."""
        rng = np.random.default_rng([self.plan.seed, DONORS, zlib.crc32(trial.encode()), step])
        return strong[int(rng.integers(len(strong)))]

    def _donor(self, trial: str, step: int) -> str | None:
        """Return the donor that a member copies now; None: the member goes on by itself.

        A donor that has left or diverged since is replaced if a better member than this is left.
        """
        donor = self.donors.get(trial)
        if donor is None or donor in self.losses:
            return donor
        donor = self._draw_donor(trial, step) if self._quantile_size() else trial
        return donor if self.losses[donor] < self.losses[trial] else None

    def _unrank(self, trial: str) -> None:
        loss = self.losses.pop(trial, None)
        if loss is not None:
            del self.ranked[bisect_left(self.ranked, (loss, trial))]

    def _turn_key(self, trial: str) -> tuple[int, bool, str]:
        """Return the sort key of a member's turn: lowest clock first, then members that copy."""
        return self.clocks.get(trial, 0), trial not in self.donors, trial

    def _unpause(self, trial: str) -> None:
        """Remove a member from the paused ones, and forget its donor."""
        key = self._turn_key(trial)
        index = bisect_left(self.paused, key)
        if self.paused[index : index + 1] == [key]:
            del self.paused[index]
        self.donors.pop(trial, None)
