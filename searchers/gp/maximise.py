"""The maximization of the acquisition over every kind of parameter.

Candidates are snapped to values that can be proposed before they are scored, so that integers,
steps and categories are searched and not rounded afterwards: random points, mutations of the best
rows, rounds of ever smaller mutations of the best candidates, then L-BFGS on the smooth parameters.

Axes: N candidates, S starts, P searched parameters, D model columns, C smooth parameters.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize

from searchers.gp.acquisition import Acquisition
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.kernels import Array
from searchers.space import Space

FIRST_STEP, ROUND_STEP = 0.3, 0.2  # mutation sizes, in shares of a parameter's range
PARENTS = 6  # candidates that a round mutates
ASCENTS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05)  # shares to try, as constraints may cut an ascent
MIN_DISTANCE = 0.05  # starts of the gradient search differ by more in some parameter


@dataclass(frozen=True)
class SearchEffort:
    """How many candidates to score; with few rows a candidate costs little."""

    random: int = 192
    mutations: int = 32  # copies of each incumbent; half as many of each parent of a round
    rounds: int = 4
    starts: int = 3
    iterations: int = 15


THOROUGH = SearchEffort()
FRUGAL = SearchEffort(random=128, mutations=16, rounds=2, starts=2, iterations=10)


@dataclass(frozen=True)
class FixedFeatures:
    """A restriction of the search: one parameter, by its index, has one value, in unit scale."""

    parameter: int
    unit: float

    def holds(self, points: Points) -> Mask:
        """Return which of the points have the value."""
        has_value_N: Mask = points.unit_NP[:, self.parameter] == self.unit
        return np.logical_and(points.active_NP[:, self.parameter], has_value_N, dtype=np.bool_)


@dataclass(frozen=True)
class Candidates:
    """Scored points, the best first."""

    points: Points
    value_N: Array

    def merged(self, other: "Candidates") -> "Candidates":
        value_N = np.append(self.value_N, other.value_N)
        order_N = np.argsort(-value_N, kind="stable")
        return Candidates(self.points.joined(other.points).take(order_N), value_N[order_N])


@dataclass(frozen=True)
class Maximiser:
    """Searches for the highest `acquisition` within `focus` (None: everywhere)."""

    space: Space
    encoding: Encoding
    acquisition: Acquisition
    focus: FixedFeatures | None
    effort: SearchEffort

    def search(self, incumbent_SP: Array, rng: Generator) -> Candidates:
        """Return candidates around the incumbents (unit rows) and everywhere else; maybe none."""
        effort = self.effort
        if self.space.is_rare:  # constraints leave little: these may be fewer points
            random_NP = units(self.space, self.space.sample_related(effort.random // 4, rng))
        else:
            random_NP = self.space.drawn(rng.random((effort.random, self.encoding.parameters)))
        mutated_NP = self.mutated(incumbent_SP, effort.mutations, FIRST_STEP, rng)
        candidates = self._score(np.vstack([random_NP, mutated_NP]))
        if not len(candidates.points):
            return candidates
        for round_ in range(effort.rounds):
            parent_SP = candidates.points.unit_NP[:PARENTS]
            step = ROUND_STEP * 0.5**round_
            child_NP = self.mutated(parent_SP, effort.mutations // 2, step, rng)
            candidates = candidates.merged(self._score(child_NP))
        if len(self.encoding.smooth_C):
            candidates = candidates.merged(self._refine(candidates))
        return candidates

    def mutated(self, parent_SP: Array, copies: int, step: float, rng: Generator) -> Array:
        """Return `copies` changed copies of each parent: many parameters changed a little, or few.

        A number moves by a normal of up to `step`, reflected at the ends of its range, and by at
        least one place on its grid; a category is drawn afresh half of the time.
        """
        parent_NP = np.repeat(parent_SP, copies, axis=0)
        count, parameters = parent_NP.shape
        share_N = np.where(rng.random(count) < 0.5, 1.5 / parameters, 0.5)
        changed_NP = rng.random((count, parameters)) < share_N[:, None]
        changed_NP[np.arange(count), rng.integers(parameters, size=count)] = True
        step_N = step * 10.0 ** rng.uniform(-1.0, 0.0, size=count)
        moved_NP = parent_NP + step_N[:, None] * rng.standard_normal((count, parameters))
        moved_NP = np.abs(1.0 - np.abs(1.0 - moved_NP))
        moved_NP = self.encoding.stepped(parent_NP, np.clip(moved_NP, 0.0, 1.0), rng)
        child_NP = np.where(changed_NP, moved_NP, parent_NP)
        return self._pulled(child_NP, parent_NP) if self.space.is_rare else child_NP

    def _pulled(self, child_NP: Array, parent_NP: Array) -> Array:
        """Return the children, pulled towards their parents where they break constraints."""
        pulled = []
        for child_P, parent_P in zip(child_NP, parent_NP, strict=True):
            child, parent = self.space.decode(child_P), self.space.decode(parent_P)
            pulled.append(child if self.space.allows(child) else self.space.pulled(child, parent))
        return units(self.space, pulled)

    def _score(self, unit_NP: Array) -> Candidates:
        """Return the points that may be proposed, snapped and scored, the best first."""
        unit_NP = self.space.place_fixed(unit_NP)
        if self.focus is not None:
            unit_NP[:, self.focus.parameter] = self.focus.unit
        points = self.encoding.snap(unit_NP)
        if self.focus is not None:
            points = points.take(np.flatnonzero(points.active_NP[:, self.focus.parameter]))
        if self.space.is_restricted:
            rows = enumerate(points.unit_NP)
            points = points.take(
                [index for index, unit_P in rows if self.space.allows(self.space.decode(unit_P))]
            )
        value_N = self.acquisition(self.encoding.columns_of(points))
        order_N = np.argsort(-value_N, kind="stable")
        return Candidates(points.take(order_N), value_N[order_N])

    def _refine(self, found: Candidates) -> Candidates:
        """Return the best distinct candidates after a joint ascent of the smooth parameters.

        One L-BFGS over all starts: the sum of their values separates, and one call of the posterior
        for S points costs little more than for one.
        """
        start = found.points.take(self._distinct_starts(found.points.unit_NP))
        parameter_C = self.encoding.smooth_C
        first_P = self.encoding.first_column_P
        column_C = first_P[parameter_C]
        fixed_C = [self.space.searched[index] in self.space.fixed for index in parameter_C]
        free_SC = start.active_NP[:, parameter_C] & ~np.array(fixed_C)
        x_SD = self.encoding.columns_of(start)

        def descent(flat: Array) -> tuple[float, Array]:
            x_SD[:, column_C] = np.where(free_SC, flat.reshape(free_SC.shape), x_SD[:, column_C])
            scaled = [each.scaled(x_SD[:, first_P]) for each in self.encoding.together]
            for each, (unit_SK, _) in zip(self.encoding.together, scaled, strict=True):
                x_SD[:, first_P[each.index_K]] = unit_SK
            value_S, gradient_SD = self.acquisition.with_gradient(x_SD)
            for each, (unit_SK, factor_SK) in zip(self.encoding.together, scaled, strict=True):
                columns_K = first_P[each.index_K]
                own_SK = each.pulled_back(gradient_SD[:, columns_K], unit_SK, factor_SK)
                gradient_SD[:, columns_K] = own_SK
            return -float(value_S.sum()), -(gradient_SD[:, column_C] * free_SC).ravel()

        result = minimize(
            descent,
            x_SD[:, column_C].ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * free_SC.size,
            options={"maxiter": self.effort.iterations},
        )
        unit_SP = start.unit_NP.copy()
        refined_SC = np.clip(result.x, 0.0, 1.0).reshape(free_SC.shape)
        unit_SP[:, parameter_C] = np.where(free_SC, refined_SC, unit_SP[:, parameter_C])
        if self.space.is_restricted:  # a point on the way may be allowed where its end is not
            unit_SP = np.vstack([start.unit_NP + t * (unit_SP - start.unit_NP) for t in ASCENTS])
        return self._score(unit_SP)

    def _distinct_starts(self, unit_NP: Array) -> list[int]:
        """Return the first candidates of which no two lie close in every parameter."""
        chosen = [0]
        for index in range(1, len(unit_NP)):
            if len(chosen) == self.effort.starts:
                break
            if (np.abs(unit_NP[chosen] - unit_NP[index]).max(axis=1) > MIN_DISTANCE).all():
                chosen.append(index)
        return chosen
