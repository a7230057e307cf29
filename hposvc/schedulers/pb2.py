"""Population based bandits: population based training whose new values are chosen by a model.

Ranks, copies and turns are those of pbt.py. The numbers that `mutate` names get, in a member that
copies, the values whose gain in the next interval has the highest upper confidence bound
(bandit.py), given the gains of all intervals so far and the values that others train with now.
Other values that it names are explored as under pbt, and not modelled (the paper's follow-up,
PB2-Mix, would choose those too).

What the paper leaves open:

* A gain is a fall of the loss, by the interval. As in the authors' code the loss before it is one
  of the model's columns: it is the donor's, and a late interval gains less.
* Nobody knows a loss before the first interval; the worst after it stands for all of them.
* A member that diverges has gained as little as the worst. Gains far below the median lose their
  size, not their order (searchers/gp/warping.py), so that one bad loss hides no differences.
* The model knows the last `MOST` intervals, and of what is under way the last `PENDING`: the cost
  of a choice is bounded.

Source: Parker-Holder, Nguyen & Roberts, Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits (NeurIPS 2020), algorithm 1.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from hposvc.reading.problems import Problem
from hposvc.schedulers.bandit import Array, Bandit, Rows
from hposvc.schedulers.mutation import Among, Move, Within, explore, read_move
from hposvc.schedulers.pbt import Pbt, Population
from hposvc.schedulers.scheduler import (
    Change,
    Fact,
    Left,
    Ordered,
    Paused,
    Plan,
    Report,
    Scheduler,
)
from searchers.domains import Domain, Float, Int
from searchers.gp.warping import TailCompression, standardized
from searchers.space import Space
from searchers.values import Params, SpaceError, Value, is_number

MOST, PENDING = 80, 32  # intervals that the model knows; that it knows to be under way
ANYWHERE, NEARBY = 256, 48  # candidates; then around the best so far
WIDTHS = (0.1, 0.03, 0.01)  # of those, one after the other
TRIES = 100  # candidates that may break a constraint before a move of pbt's is made


@dataclass(frozen=True)
class Pb2(Pbt):
    """Truncation selection, and a bandit that chooses the numbers."""

    name: ClassVar[str] = "pb2"

    def scheduler(self, plan: Plan) -> Scheduler:
        """A population of `plan.trials` members, and what their intervals gained."""
        return _Bandits(self, plan, self.steps(plan))

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """What of it does not fit the sweep; paths are from the spec's top."""
        yield from super().problems(space, plan)
        known = [name for name in self.mutate if name in space]
        for name in known:
            if is_number(self.mutate[name]) and _is_number(space[name]):
                message = f"is a factor of {self.mutate[name]}, but pb2 chooses among all values"
                remedy = "give a range {min, max}, {} for all of its own, or a list"
                yield Problem(("scheduler", "mutate", name), f"{message}; {remedy}")
        if known and not any(_is_number(space[name]) for name in known):
            message = f"names no number ({', '.join(known)}), and pb2 models only those"
            yield Problem(("scheduler", "mutate"), f"{message}; add one, or use pbt")


@dataclass(frozen=True)
class Stint:
    """What a member trains with between two ranks."""

    start: int  # its clock
    values: Params  # of the names that may change
    before: float | None  # the loss that it began from; None: it began from nothing


@dataclass(frozen=True)
class Outcome:
    """What a stint came to."""

    stint: Stint
    until: int
    after: float  # infinite: it diverged

    def change(self, first: float) -> float:
        """Of the loss, by the step; `first` is the loss of those that began from nothing."""
        before = first if self.stint.before is None else self.stint.before
        return (self.after - before) / max(self.until - self.stint.start, 1)


@dataclass(frozen=True)
class Select:
    """Go on from the donor's weights, with the numbers that promise most."""

    donor: str
    policy: Pb2
    clock: int  # of the member that copies
    loss: float  # the donor's
    told: tuple[Outcome, ...]
    pending: tuple[Stint, ...]

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """The donor's values, with the numbers that may change chosen, and the rest explored.

        Where no choice is found that satisfies the constraints, the numbers are explored, too.
        """
        resample = self.policy.resample
        moves = {name: read_move(space[name], how) for name, how in self.policy.mutate.items()}
        numbers = {name: move for name, move in moves.items() if _is_number(space[name])}
        others = {name: move for name, move in moves.items() if name not in numbers}
        base = explore(space, params, others, resample, rng)
        free = {name: move for name, move in numbers.items() if name in base}
        candidates = self._ranked(space, numbers, free, rng) if free else ()
        for chosen in islice(candidates, TRIES):
            found = {**base, **chosen}
            if space.allows(found):
                return found
        return explore(space, params, moves, resample, rng) if free else base

    def _ranked(
        self, space: Space, numbers: Mapping[str, Move], free: Mapping[str, Move], rng: Generator
    ) -> Iterator[dict[str, Value]]:
        """Values of the free numbers, the most promising first."""
        bandit, context = self._model(space, list(numbers))
        time = self.clock / self.policy.interval

        def score(unit_MF: Array) -> Array:
            chosen = [_chosen(free, unit_F) for unit_F in unit_MF.tolist()]
            x_MD = _columns(space, list(numbers), chosen, np.full(len(chosen), context))
            return bandit.bound(Rows(x_MD, np.full(len(chosen), time)))

        unit_MF = rng.random((ANYWHERE, len(free)))
        bound_M = score(unit_MF)
        for width in WIDTHS:
            best_F = unit_MF[np.argmax(bound_M)]
            near_MF = best_F + width * rng.standard_normal((NEARBY, len(free)))
            near_MF = np.clip(near_MF, 0.0, 1.0)
            unit_MF, bound_M = (
                np.vstack([unit_MF, near_MF]),
                np.concatenate([bound_M, score(near_MF)]),
            )
        order_M = np.argsort(-bound_M, kind="stable")
        return (_chosen(free, unit_MF[place].tolist()) for place in order_M)

    def _model(self, space: Space, names: Sequence[str]) -> tuple[Bandit, float]:
        """What is known, and the column of the loss that the member goes on from."""
        stints = [*(outcome.stint for outcome in self.told), *self.pending]
        afters = [each.after for each in self.told if math.isfinite(each.after)]
        begun = [
            each.after
            for each in self.told
            if each.stint.before is None and math.isfinite(each.after)
        ]
        first = max(begun or afters or [self.loss])
        before = [first if stint.before is None else stint.before for stint in stints]
        column_N = _levels(np.array([*before, self.loss]))
        x_ND = _columns(space, names, [stint.values for stint in stints], column_N[:-1])
        time_N = np.array([stint.start for stint in stints], dtype=float) / self.policy.interval
        count = len(self.told)
        gain_N = _gains(np.array([outcome.change(first) for outcome in self.told]))
        told, pending = Rows(x_ND[:count], time_N[:count]), Rows(x_ND[count:], time_N[count:])
        return Bandit.of(told, gain_N, pending), float(column_N[-1])


@dataclass
class _Bandits(Population):
    policy: Pb2
    stints: dict[str, Stint] = field(default_factory=dict)  # under way; the newest are the last
    told: deque[Outcome] = field(default_factory=lambda: deque(maxlen=MOST))

    def apply(self, fact: Fact) -> None:
        if isinstance(fact, Ordered) and fact.trial not in self.stints:
            self._begin(fact)  # before it is forgotten whom it copies
        super().apply(fact)
        match fact:
            case Report():
                self._learn(fact)
            case Paused() | Left():
                self.stints.pop(fact.trial, None)

    def change(self, trial: str, donor: str) -> Change:
        latest = tuple(islice(reversed(self.stints.values()), PENDING))
        clock, loss = self.clocks[trial], self.losses[donor]
        return Select(donor, self.policy, clock, loss, tuple(self.told), latest)

    def _begin(self, fact: Ordered) -> None:
        clock = self.clocks.get(fact.trial, 0)
        source = self._donor(fact.trial, clock) or fact.trial
        values = {name: fact.params[name] for name in self.policy.mutate if name in fact.params}
        self.stints[fact.trial] = Stint(clock, values, self.losses.get(source))

    def _learn(self, report: Report) -> None:
        """A stint ends where its member is ranked, or diverges."""
        diverged = math.isinf(report.loss)
        if not diverged and not self.is_rank(report.step):
            return
        stint = self.stints.pop(report.trial, None)
        if stint is None:
            return
        self.told.append(Outcome(stint, report.step, report.loss))
        if not diverged:
            self.stints[report.trial] = Stint(report.step, stint.values, report.loss)


def _is_number(domain: Domain) -> bool:
    return isinstance(domain, Float | Int)


def _chosen(free: Mapping[str, Move], unit_F: Sequence[float]) -> dict[str, Value]:
    """The values at a place in the unit cube of what each may take."""
    return {name: _at(move, unit) for (name, move), unit in zip(free.items(), unit_F, strict=True)}


def _at(move: Move, unit: float) -> Value:
    match move:
        case Within(domain):
            return domain.from_unit(unit)
        case Among(values):
            return values[min(int(unit * len(values)), len(values) - 1)]
    raise SpaceError((), f"is {move}; give a range or a list")  # `problems` refuses factors


def _columns(
    space: Space, names: Sequence[str], values: Sequence[Params], context_N: Array
) -> Array:
    """A column for each name, 0.5 where it is inactive, and the one of the losses before."""
    unit_ND = [
        [space[name].to_unit(each[name]) if name in each else 0.5 for name in names]
        for each in values
    ]
    return np.column_stack([np.reshape(unit_ND, (len(values), len(names))), context_N])


def _levels(loss_N: Array) -> Array:
    """Losses as a column in [0, 1], the worst ones brought near to the others."""
    output_N = standardized(TailCompression.fit, loss_N).forward(loss_N)
    level_N: Array = (output_N - output_N.min()) / (float(np.ptp(output_N)) or 1.0)
    return level_N


def _gains(change_N: Array) -> Array:
    """Changes of loss as standardized gains; the infinite ones are as bad as the worst finite."""
    finite_N = change_N[np.isfinite(change_N)]
    if not len(finite_N):
        return np.zeros(len(change_N))
    change_N = np.minimum(change_N, finite_N.max())
    return -standardized(TailCompression.fit, change_N).forward(change_N)
