"""Population based bandits (PB2): population based training in which a model chooses new values.

Members are ranked, copied and given turns as in pbt.py. When a member copies another, the numbers
that `mutate` names get the values whose gain in the next interval has the highest upper confidence
bound (pb2_model.py), given the gains of all intervals so far and the values that other members
train with now. Other values that `mutate` names are explored as under pbt, and not modelled (the
paper's follow-up, PB2-Mix, would choose those too).

Choices that the paper leaves open:

* A gain is the fall of the loss in an interval. As in the authors' code, the loss before the
  interval (the donor's, for a copy) is a column of the model, because late intervals gain less.
* No loss is reported before the first interval; the worst loss after it stands for all of them.
* The gain of a diverging member counts as low as the worst finite gain. Gains far below the median
  are compressed in size but keep their order (searchers/gp/warping.py), so that one bad loss does
  not hide the differences between the others.
* The model uses the last `MAX_OUTCOMES` finished intervals and the last `MAX_PENDING` intervals
  under way, so the cost of a choice is bounded.

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

from hposvc.errors import Problem
from hposvc.schedulers.pb2_model import Array, Bandit, Rows
from hposvc.schedulers.pbt import Pbt, Population
from hposvc.schedulers.pbt_mutation import Among, Move, Within, explore, read_moves
from hposvc.schedulers.scheduler import Change, Fact, Left, Ordered, Paused, Plan, Report, Scheduler
from searchers import Domain, Float, Int, Params, Space, SpaceError, Value, is_number
from searchers.gp.warping import TailCompression, standardized

MAX_OUTCOMES, MAX_PENDING = 80, 32  # intervals that the model uses: finished, and under way
GLOBAL_CANDIDATES = 256  # in the whole unit cube
LOCAL_CANDIDATES = 48  # near the best so far, in each round
LOCAL_WIDTHS = (0.1, 0.03, 0.01)  # standard deviations of the rounds of local candidates
TRIES = 100  # candidates that may break a constraint before values are explored as under pbt


@dataclass(frozen=True)
class Pb2(Pbt):
    """Truncation selection on a population, with numbers chosen by a bandit."""

    name: ClassVar[str] = "pb2"
    simulated_as: ClassVar[str] = "pbt"

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a population of `plan.trials` members that records the gains of its intervals."""
        return _Bandits(self, plan, self.steps(plan))

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """Yield the options that do not fit the sweep; paths start at the top of the spec."""
        yield from super().problems(space, plan)
        names = [name for name in self.mutate if name in space]
        for name in names:
            if is_number(self.mutate[name]) and _is_number(space[name]):
                message = f"is a factor of {self.mutate[name]}, but pb2 chooses among all values"
                remedy = "give a range {min, max}, {} for all of its own, or a list"
                yield Problem(("scheduler", "mutate", name), message, remedy)
        if names and not any(_is_number(space[name]) for name in names):
            message = f"names no number ({', '.join(names)}), and pb2 models only those"
            yield Problem(("scheduler", "mutate"), message, "add one, or use pbt")


@dataclass(frozen=True)
class TrainingInterval:
    """The training of a member between two rankings, with unchanged values."""

    start: int  # the member's step at the beginning
    values: Params  # of the names that may change
    before: float | None  # loss at the beginning; None: the member began from scratch


@dataclass(frozen=True)
class IntervalOutcome:
    """A finished interval, with its last step and loss."""

    interval: TrainingInterval
    until: int
    after: float  # loss at `until`; infinite: the member diverged

    def change(self, first: float) -> float:
        """Return the change of the loss per step; `first` is the loss of a start from scratch."""
        before = first if self.interval.before is None else self.interval.before
        return (self.after - before) / max(self.until - self.interval.start, 1)


@dataclass(frozen=True)
class Select:
    """Go on from the donor's weights, with the numbers whose gain has the highest bound."""

    donor: str
    policy: Pb2
    clock: int  # last ranking step of the member that copies
    loss: float  # the donor's
    outcomes: tuple[IntervalOutcome, ...]
    pending: tuple[TrainingInterval, ...]

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """Return the donor's values, with numbers chosen by the model and other values explored.

        If none of the best `TRIES` candidates satisfies the constraints, the numbers are explored
        too.
        """
        resample = self.policy.resample
        moves = read_moves(space, self.policy.mutate)
        numbers = {name: move for name, move in moves.items() if _is_number(space[name])}
        others = {name: move for name, move in moves.items() if name not in numbers}
        base = explore(space, params, others, resample, rng)
        free = {name: move for name, move in numbers.items() if name in base}
        candidates = self._candidates(space, numbers, free, rng) if free else ()
        for chosen in islice(candidates, TRIES):
            values = {**base, **chosen}
            if space.allows(values):
                return values
        return explore(space, params, moves, resample, rng) if free else base

    def _candidates(
        self, space: Space, numbers: Mapping[str, Move], free: Mapping[str, Move], rng: Generator
    ) -> Iterator[dict[str, Value]]:
        """Yield values of the free numbers, highest upper confidence bound first."""
        bandit, context = self._fit_model(space, list(numbers))
        time = self.clock / self.policy.interval

        def score(unit_MF: Array) -> Array:
            chosen = [_values_at(free, unit_F) for unit_F in unit_MF.tolist()]
            x_MD = _columns(space, list(numbers), chosen, np.full(len(chosen), context))
            return bandit.bound(Rows(x_MD, np.full(len(chosen), time)))

        unit_MF = rng.random((GLOBAL_CANDIDATES, len(free)))
        bound_M = score(unit_MF)
        for width in LOCAL_WIDTHS:
            best_F = unit_MF[np.argmax(bound_M)]
            near_MF = best_F + width * rng.standard_normal((LOCAL_CANDIDATES, len(free)))
            near_MF = np.clip(near_MF, 0.0, 1.0)
            unit_MF, bound_M = (
                np.vstack([unit_MF, near_MF]),
                np.concatenate([bound_M, score(near_MF)]),
            )
        order_M = np.argsort(-bound_M, kind="stable")
        return (_values_at(free, unit_MF[index].tolist()) for index in order_M)

    def _fit_model(self, space: Space, names: Sequence[str]) -> tuple[Bandit, float]:
        """Return the model fitted to all intervals, and the member's level of loss in [0, 1]."""
        intervals = [*(outcome.interval for outcome in self.outcomes), *self.pending]
        afters = [outcome.after for outcome in self.outcomes if math.isfinite(outcome.after)]
        first_afters = [
            outcome.after
            for outcome in self.outcomes
            if outcome.interval.before is None and math.isfinite(outcome.after)
        ]
        first = max(first_afters or afters or [self.loss])
        before = [first if interval.before is None else interval.before for interval in intervals]
        loss_N = np.array([*before, self.loss])
        # The worst losses are moved closer to the others, then all are scaled to [0, 1].
        output_N = standardized(TailCompression.fit, loss_N).forward(loss_N)
        level_N: Array = (output_N - output_N.min()) / (float(np.ptp(output_N)) or 1.0)
        x_ND = _columns(space, names, [interval.values for interval in intervals], level_N[:-1])
        start_N = np.array([interval.start for interval in intervals], dtype=float)
        time_N = start_N / self.policy.interval
        count = len(self.outcomes)
        gain_N = _gains(np.array([outcome.change(first) for outcome in self.outcomes]))
        finished, pending = Rows(x_ND[:count], time_N[:count]), Rows(x_ND[count:], time_N[count:])
        return Bandit.of(finished, gain_N, pending), float(level_N[-1])


@dataclass
class _Bandits(Population):
    policy: Pb2
    intervals: dict[str, TrainingInterval] = field(default_factory=dict)  # under way; newest last
    outcomes: deque[IntervalOutcome] = field(default_factory=lambda: deque(maxlen=MAX_OUTCOMES))

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Ordered() if fact.trial not in self.intervals:
                source = fact.parent if fact.parent in self.losses else fact.trial
                names = [name for name in self.policy.mutate if name in fact.params]
                self.intervals[fact.trial] = TrainingInterval(
                    start=self.clocks[fact.trial],
                    values={name: fact.params[name] for name in names},
                    before=self.losses.get(source),
                )
            case Report():
                self._end_interval(fact)
            case Paused() | Left():
                self.intervals.pop(fact.trial, None)

    def change(self, trial: str, donor: str) -> Change:
        latest = tuple(islice(reversed(self.intervals.values()), MAX_PENDING))
        clock, loss = self.clocks[trial], self.losses[donor]
        return Select(donor, self.policy, clock, loss, tuple(self.outcomes), latest)

    def _end_interval(self, report: Report) -> None:
        """End the member's interval if the member was ranked or diverged, and begin the next."""
        diverged = math.isinf(report.loss)
        if not diverged and not self.is_ranking_step(report.step):
            return
        interval = self.intervals.pop(report.trial, None)
        if interval is None:
            return
        self.outcomes.append(IntervalOutcome(interval, report.step, report.loss))
        if not diverged:
            self.intervals[report.trial] = TrainingInterval(
                report.step, interval.values, report.loss
            )


def _is_number(domain: Domain) -> bool:
    return isinstance(domain, Float | Int)


def _values_at(free: Mapping[str, Move], unit_F: Sequence[float]) -> dict[str, Value]:
    """Return the values at a point of the unit cube, one coordinate for each free number."""
    return {
        name: _from_unit(move, unit)
        for (name, move), unit in zip(free.items(), unit_F, strict=True)
    }


def _from_unit(move: Move, unit: float) -> Value:
    match move:
        case Within(domain):
            return domain.from_unit(unit)
        case Among(values):
            return values[min(int(unit * len(values)), len(values) - 1)]
    raise SpaceError((), f"is {move}; give a range or a list")  # `problems` refuses factors


def _columns(
    space: Space, names: Sequence[str], values: Sequence[Params], context_N: Array
) -> Array:
    """Return a column for each name (0.5 where inactive), then the column of losses before."""
    unit_ND = [
        [space[name].to_unit(params[name]) if name in params else 0.5 for name in names]
        for params in values
    ]
    return np.column_stack([np.reshape(unit_ND, (len(values), len(names))), context_N])


def _gains(change_N: Array) -> Array:
    """Return changes of loss as standardized gains; infinite ones count as the worst finite."""
    finite_N = change_N[np.isfinite(change_N)]
    if not len(finite_N):
        return np.zeros(len(change_N))
    change_N = np.minimum(change_N, finite_N.max())
    return -standardized(TailCompression.fit, change_N).forward(change_N)
