"""Freeze and thaw: whoever promises most gets the next steps. A prototype, for `thaw_race.py`.

Every trial trains in legs. After each it goes on, unless a paused trial or a new one is expected to
gain more for its cost; then it pauses, and the slot is theirs. What is expected is by a model of
learning curves (`curve_beliefs.py`) alone: the scheduler is told no space.

Sources: Swersky, Snoek & Adams, Freeze-Thaw Bayesian Optimization (2014); Wistuba, Kadra &
Grabocka, Supervising the Multi-Fidelity Race of Hyperparameter Configurations (DyHPO, 2022);
Rakotoarison et al., In-Context Freeze-Thaw Bayesian Optimization (ifBO, 2024).

Axes: N trials, M candidates, S steps, J quantiles.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from asymptotes import Asymptotes
from curve_beliefs import MODELS, Array, Belief, Curves, Index, Model
from scipy.special import ndtr, ndtri

from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Over,
    Paused,
    Plan,
    Report,
    Running,
    Scheduler,
    Wait,
    rungs,
)
from searchers.gp.warping import LARGEST_LOSS, TailCompression, standardized
from searchers.space import Space

Acquisition = Literal["rest", "look", "next", "chance"]
QUANTILES = ndtri((np.arange(16) + 0.5) / 16)
RARELY, AT_LEAST = 1.05, 4  # a fit is made when there are so many times, and more, reports


@dataclass(frozen=True)
class FreezeThaw:
    """Legs go to whom they promise most.

    Attributes:
        leg: steps; None: up to the next of asha's rungs.
        model: of curves, see `curve_beliefs.py`.
        acquisition: `rest`, the expected improvement at the end by the steps until there; `look`,
            the same, but who looks bad after the next leg is given up; `next`, the expected
            improvement at the end of the leg on those that came there (DyHPO's); `chance`, the
            probability of an improvement drawn at random at a step drawn at random (ifBO's).
        reload: what a thaw costs, in steps.
        space: of the configurations, which the model `decay` may know; None: it knows none.
    """

    leg: int | None = 1
    model: Literal["rungs", "decay"] = "rungs"
    acquisition: Acquisition = "look"
    reload: float = 0.1
    space: Mapping[str, Mapping[str, float | bool]] | None = None
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan: Plan) -> Scheduler:
        """One that trains in legs."""
        if self.leg is None:
            stops = rungs(plan.first, plan.last, 3)[:-1]
        else:
            stops = tuple(range(self.leg, plan.last, self.leg))
        return Thawing(policy=self, plan=plan, stops=stops, model=MODELS[self.model](plan.last))


@dataclass(kw_only=True)
class Thawing(Running):
    """The state: curves, who is paused, and what is believed."""

    policy: FreezeThaw
    plan: Plan
    stops: tuple[int, ...]
    model: Model
    row: dict[str, int] = field(default_factory=dict)  # of a trial
    paused: dict[str, None] = field(default_factory=dict)
    reports: int = 0
    fit_at: int = AT_LEAST
    belief: Belief | None = None

    def __post_init__(self) -> None:
        self.raw_NS = np.zeros((16, self.plan.last))
        self.loss_NS = np.zeros((16, self.plan.last))  # standardized
        self.expected_NS = np.zeros((16, self.plan.last))
        self.space = Space.from_dict(self.policy.space) if self.policy.space else None
        self.unit_NP = np.zeros((16, len(self.space.searched) if self.space else 0))
        self.asymptotes: Asymptotes | None = None
        self.length: float | None = None  # between two fits
        self.steps_N: Index = np.zeros(16, dtype=np.intp)
        self.next_S = np.array(  # where the leg ends that begins after so many steps
            [
                next((stop for stop in (*self.stops, self.plan.last) if stop > step), step)
                for step in range(self.plan.last + 1)
            ]
        )

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Ordered():
                self.paused.pop(fact.trial, None)
                self._place(fact)
            case Report():
                self._learn(fact)
            case Paused():
                self.paused[fact.trial] = None
            case Left():
                self.paused.pop(fact.trial, None)

    def _place(self, fact: Ordered) -> None:
        row = self.row.setdefault(fact.trial, len(self.row))
        if row >= len(self.raw_NS):
            for name in ("raw_NS", "loss_NS", "expected_NS", "steps_N", "unit_NP"):
                setattr(self, name, np.concatenate([(old := getattr(self, name)), 0 * old]))
        if self.space is not None:
            own = {name: value for name, value in fact.params.items() if name in self.space}
            self.unit_NP[row] = self.space.encode(own)

    def _learn(self, report: Report) -> None:
        row = self.row[report.trial]
        self.asymptotes = None
        self.raw_NS[row, report.step - 1] = min(report.loss, LARGEST_LOSS)
        self.steps_N[row] = report.step
        self.reports += 1
        if self.reports >= self.fit_at:
            self._fit()
        elif self.belief is not None:
            self.loss_NS[row] = self._standard(self.raw_NS[row], report.step)
            one = Curves(self.loss_NS[[row]], self.steps_N[[row]])
            self.expected_NS[row] = self.belief.expected(one)[0]

    def _standard(self, raw_S: Array, steps: int) -> Array:
        loss_S: Array = self.warp.forward(raw_S)
        loss_S[steps:] = 0.0
        return loss_S

    def _fit(self) -> None:
        there_NS = np.arange(self.plan.last) < self.steps_N[:, None]
        self.warp = standardized(TailCompression.fit, self.raw_NS[there_NS])
        self.loss_NS = np.where(there_NS, self.warp.forward(self.raw_NS), 0.0)
        rows_N = np.flatnonzero(self.steps_N)
        curves = Curves(self.loss_NS[rows_N], self.steps_N[rows_N])
        self.belief, self.length = self.model.fit(curves), None
        self.expected_NS[rows_N] = self.belief.expected(curves)
        self.fit_at = max(self.reports + AT_LEAST, math.ceil(RARELY * self.reports))

    def next(self) -> NewTrial | Advance | Wait | Over:
        name, _ = self._best()
        if name == "":
            return NewTrial(self.plan.last, self.stops)
        if name is None:
            return self.rest()
        step = int(self.steps_N[self.row[name]])
        return Advance(name, self.plan.last, tuple(stop for stop in self.stops if stop > step))

    def width(self) -> int:
        return len(self.running) + len(self.paused)

    def _best(self) -> tuple[str | None, float]:
        """A paused trial, "" for a new one, or None, and what it promises by the step."""
        names = [*self.paused, *([] if self.closed else [""])]
        if not names:
            return None, -math.inf
        if self.belief is None:
            return (names[-1], math.inf) if not self.closed else (names[0], 0.0)
        rows_M = [self.row.get(name, -1) for name in names]
        value_M = self._values(rows_M, self.policy.reload)
        place = int(np.argmax(value_M))
        return names[place], float(value_M[place])

    def judge(self, report: Report) -> Decision:
        name, other = self._best()
        if name is None or self.belief is None:
            return Decision("continue", "promise")
        own = float(self._values([self.row[report.trial]], 0.0)[0])
        return Decision("continue" if own >= other else "pause", "promise", f"{own:g}, {other:g}")

    def _values(self, rows: list[int], reload: float) -> Array:
        """What each row promises by the step; -1 is a new trial."""
        belief = self.belief
        assert belief is not None
        row_M = np.array(rows)
        is_new_M = row_M < 0
        steps_M = np.where(is_new_M, 0, self.steps_N[row_M])
        until_M = self.next_S[steps_M]
        cost_M = until_M - steps_M + np.where(is_new_M, 0.0, reload)
        rest_M = self.plan.last - until_M
        final_M, variance_M, left_M = self._final(row_M, steps_M, until_M)
        row_N = np.flatnonzero(self.steps_N)
        now_N = self.expected_NS[row_N, self.steps_N[row_N] - 1]
        best = float(now_N.min())
        match self.policy.acquisition:
            case "rest":
                return improvement(best, final_M, np.sqrt(variance_M)) / (cost_M + rest_M)
            case "look":
                seen_M = np.sqrt(np.maximum(variance_M - left_M, 0.0))
                mean_MJ = final_M[:, None] + seen_M[:, None] * QUANTILES
                gain_MJ = improvement(best, mean_MJ, np.sqrt(left_M)[:, None])
                share_J = np.arange(1, len(QUANTILES) + 1) / len(QUANTILES)
                gain_MJ = gain_MJ.cumsum(axis=1) / len(QUANTILES)
                value_M: Array = (gain_MJ / (cost_M[:, None] + share_J * rest_M[:, None])).max(1)
                return value_M
            case "next":
                best_M = np.array([self._best_at(step) for step in until_M])
                place = np.arange(len(rows)), until_M - 1
                mean_MS = np.where(is_new_M[:, None], belief.mean_S, self.expected_NS[row_M])
                variance_MS = belief.variance_KS[steps_M]
                return improvement(best_M, mean_MS[place], np.sqrt(variance_MS[place])) / cost_M
            case "chance":
                rng = np.random.default_rng([self.plan.seed, self.reports, len(self.row)])
                aim = best - 10 ** rng.uniform(-4, -1)
                at_M = np.minimum(steps_M + rng.integers(1, self.plan.last + 1), self.plan.last) - 1
                place = np.arange(len(rows)), at_M
                mean_MS = np.where(is_new_M[:, None], belief.mean_S, self.expected_NS[row_M])
                variance_MS = belief.variance_KS[steps_M]
                return ndtr((aim - mean_MS[place]) / np.sqrt(variance_MS[place]))

    def _final(self, row_M: Index, steps_M: Index, until_M: Index) -> tuple[Array, Array, Array]:
        """Mean and variance of the last loss, and the latter after the leg."""
        belief = self.belief
        assert belief is not None
        if self.space is None:
            mean_M = np.where(row_M < 0, belief.mean_S[-1], self.expected_NS[row_M, -1])
            return mean_M, belief.variance_KS[steps_M, -1], belief.variance_KS[until_M, -1]
        count = len(self.row)
        told_N = np.flatnonzero(self.steps_N)
        if self.asymptotes is None:
            curves = Curves(self.loss_NS[told_N], self.steps_N[told_N])
            self.asymptotes = Asymptotes.of(curves, belief, self.unit_NP[told_N], self.length)
            self.length = self.asymptotes.length
        place_N = np.full(count, -1)
        place_N[told_N] = np.arange(len(told_N))
        return self.asymptotes.final(np.where(row_M < 0, -1, place_N[row_M]), steps_M, until_M)

    def _best_at(self, step: int) -> float:
        """The lowest at a step of those that came there; if none did, of all where they stand."""
        there_N = np.flatnonzero(self.steps_N >= step)
        if not len(there_N):
            row_N = np.flatnonzero(self.steps_N)
            return float(self.expected_NS[row_N, self.steps_N[row_N] - 1].min())
        return float(self.expected_NS[there_N, step - 1].min())


def improvement(best: float | Array, mean_M: Array, spread_M: Array) -> Array:
    """Expected, of losses with a mean and a deviation, on the best."""
    z_M = (best - mean_M) / spread_M
    density_M = np.exp(-0.5 * z_M**2) / math.sqrt(2.0 * math.pi)
    return np.maximum(spread_M * (z_M * ndtr(z_M) + density_M), 0.0)
