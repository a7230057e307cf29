"""Sampling where constraints leave little of the unit cube: shares of a sum, x0 < x1 < ... < x7.

Random descents find points that meet the constraints; from there, hit-and-run goes on inside. Each
of its steps takes a line through the point and samples from the part of the line within the region,
by slice sampling with shrinkage. So nothing has to be known of the region but a test of a point:
constraints may be linear or not, parameters whole numbers, on a log scale, ordered or conditional.

Axes: D dimensions of the region, S starts.
Sources: Smith, Efficient Monte Carlo Procedures for Generating Points Uniformly Distributed over
Bounded Regions (1984); Neal, Slice Sampling (2003), figure 5; differences of points as directions:
ter Braak, A Markov Chain Monte Carlo version of the genetic algorithm (2006).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]

DESCENTS = 16  # from random points; each that succeeds is a start
PATIENCE = 8  # steps of a descent without progress, for each dimension; then it has failed
SHRINKS = 12  # of a line; with 12, what is left of it is 1/4,000
MIXING = 20  # steps for each dimension from a start to a sample
THINNING = 2  # steps for each dimension between two samples of one walk


class NothingFound(Exception):
    """No point meets the constraints, as far as was seen; `nearest_D` comes nearest."""

    def __init__(self, nearest_D: Array) -> None:
        super().__init__("no point meets the constraints")
        self.nearest_D = nearest_D


@dataclass(frozen=True)
class Region:
    """The part of a unit cube in which `excess` is 0.

    Attributes:
        dimensions: of the cube.
        excess: by how much a point breaks the constraints; 0: it meets them.
        snapped: returns the point with values on a grid at the centres of their cells.
    """

    dimensions: int
    excess: Callable[[Array], float]
    snapped: Callable[[Array], Array]

    def starts(self, rng: Generator) -> Array:
        """Return points of the region, (S, D), spread by chance.

        Raises:
            NothingFound: no descent ended in the region.
        """
        ends = [self._descent(rng) for _ in range(DESCENTS)]
        starts = [point_D for point_D, excess in ends if excess == 0.0]
        if not starts:
            raise NothingFound(min(ends, key=lambda end: end[1])[0])
        return np.array(starts)

    def walk(self, start_SD: Array, count: int, rng: Generator) -> list[Array]:
        """Return points of one walk from a start, nearly uniform in the region.

        The first is nearly independent of the start, the others are less so of one another.
        """
        point_D = start_SD[int(rng.integers(len(start_SD)))]
        points = []
        for index in range(count):
            for _ in range((THINNING if index else MIXING) * self.dimensions):
                point_D = self._step(point_D, 0.0, start_SD, rng)[0]
            points.append(point_D)
        return points

    def _descent(self, rng: Generator) -> tuple[Array, float]:
        """Return where a descent from a random point ends, and its excess."""
        point_D = self.snapped(rng.random(self.dimensions))
        excess, idle = self.excess(point_D), 0
        while excess > 0.0 and idle < PATIENCE * self.dimensions:
            point_D, reached = self._step(point_D, excess, None, rng)
            idle = 0 if reached < 0.999 * excess else idle + 1
            excess = reached
        return point_D, excess

    def _step(
        self, point_D: Array, bound: float, start_SD: Array | None, rng: Generator
    ) -> tuple[Array, float]:
        """Return a random point of a line through a point, where the excess is within a bound."""
        direction_D = self._direction(start_SD, rng)
        moves_D = direction_D != 0.0
        ends_2D = (np.array([[0.0], [1.0]]) - point_D[moves_D]) / direction_D[moves_D]
        low, high = float(ends_2D.min(axis=0).max()), float(ends_2D.max(axis=0).min())
        for _ in range(SHRINKS):
            share = rng.uniform(low, high)
            moved_D = self.snapped(np.clip(point_D + share * direction_D, 0.0, 1.0))
            excess = self.excess(moved_D)
            if excess <= bound:
                return moved_D, excess
            low, high = (share, high) if share < 0.0 else (low, share)
        return point_D, bound

    def _direction(self, start_SD: Array | None, rng: Generator) -> Array:
        """Return one axis, two against each other, all at random, or the way between two starts."""
        kind = rng.random()
        if kind < 0.25 and start_SD is not None and len(start_SD) > 1:
            first, other = rng.choice(len(start_SD), size=2, replace=False)
            between_D: Array = start_SD[first] - start_SD[other]
            if between_D.any():
                return between_D
        if kind > 0.85:
            return rng.standard_normal(self.dimensions)
        direction_D = np.zeros(self.dimensions)
        if kind > 0.6 and self.dimensions > 1:
            first, other = rng.choice(self.dimensions, size=2, replace=False)
            direction_D[[first, other]] = 1.0, -1.0
        else:
            direction_D[int(rng.integers(self.dimensions))] = 1.0
        return direction_D
