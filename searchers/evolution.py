"""CMA-ES: a normal distribution over the unit cube that moves to where the best results lie.

Axes: R results, D numeric parameters. The distribution is rebuilt at every call by telling the
results again, in the order of proposal, so that it needs no state beside the history; 1,000 results
in 10 dimensions take 20 ms.
Sources: Hansen, The CMA Evolution Strategy: A Tutorial (2016), figure 6, as the package `cmaes`
implements it; restarts with twice the population: Auger and Hansen, IPOP-CMA-ES (2005), section 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

import numpy as np
from cmaes import CMA
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.bounds import AT_ONCE, AtMost
from searchers.domains import Choice
from searchers.fidelity import Scored, comparable
from searchers.novelty import SeenConfigs, pull_new, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space, Value

Array = NDArray[np.float64]

WIDTH = 1 / 6  # the initial standard deviation: the cube's faces are three of them away
RETRIES = 50  # of draws that break a constraint or repeat; then draws are pulled to allowed ones


@dataclass(frozen=True)
class CMAES:
    """Covariance matrix adaptation, for spaces of numbers and hundreds of trials.

    Ranges and ordered choices are the dimensions. The values of unordered choices are drawn at
    random, whatever the results: take another method where they matter. A conditional parameter is
    a dimension that learns nothing from the trials in which it was inactive. The distribution
    begins at the middle of each dimension, or at the median of its normal range. A generation is
    complete with as many results as the population, whichever trials they are from, so parallel
    trials and added ones all count; pending trials are ignored, since proposals are random draws
    anyhow. Failed trials rank last, and before them trials that exceed limits, by how far they do.

    Attributes:
        population: results between two updates of the distribution; 0: 4 + 3 ln(D), rounded down.
    """

    population: Annotated[int, AtMost(AT_ONCE)] = 0
    uses_results: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.population != 0 and self.population < 4:
            raise ValueError(
                f"population is {self.population}; give 4 or more, or 0 (by dimension)"
            )

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        taken = SeenConfigs(space, (seen.params for seen in history))
        proposals: list[Proposal] = []
        if _numeric_columns(space):
            scored = comparable(history, enough=len(space.searched) + 1)
            proposals = _draw_new(space, evolve(space, scored, self.population), taken, n, rng)
        while len(proposals) < n and (params := sample_new(space, taken, rng)) is not None:
            proposals.append(Proposal(params, {"source": "random"}))
        return proposals


def evolve(space: Space, scored: Sequence[Scored], population: int = 0) -> CMA:
    """Return the distribution over the space's numbers after all full generations."""
    columns = _numeric_columns(space)
    mean_D = space.drawn(np.full(len(space.searched), 0.5))[columns]
    optimizer = _new_distribution(mean_D, population or None)
    start, size = 0, optimizer.population_size
    while start + size <= len(scored):
        generation = scored[start : start + size]
        points = [_point(space, columns, trial, optimizer.mean) for trial in generation]
        optimizer.tell(list(zip(points, _ranks(generation), strict=True)))
        start += size
        if optimizer.should_stop():
            size *= 2
            optimizer = _new_distribution(mean_D, size)
    return optimizer


def _numeric_columns(space: Space) -> list[int]:
    """Return the columns of the parameters that are dimensions of the distribution."""
    domains = [space[name] for name in space.searched]
    return [
        column
        for column, domain in enumerate(domains)
        if not isinstance(domain, Choice) or domain.ordered
    ]


def _new_distribution(mean_D: Array, population: int | None) -> CMA:
    bounds_D2 = np.tile([0.0, 1.0], (len(mean_D), 1))
    return CMA(mean_D, WIDTH, bounds_D2, seed=0, population_size=population)


def _point(space: Space, places: list[int], one: Scored, mean_D: Array) -> Array:
    """Return the point of a trial, (D,).

    Inactive parameters are put at the mean, where they move nothing.
    """
    params = one.observation.params
    names = [space.searched[column] for column in places]
    active_D = np.array([name in params for name in names])
    return np.where(active_D, space.encode(params)[places], mean_D)


def _ranks(generation: Sequence[Scored]) -> list[float]:
    """Return the rank of each result, all that the method looks at; equal results share one."""
    keys = [
        (math.inf, 0.0) if scored.loss is None else (scored.observation.exceeded, scored.loss)
        for scored in generation
    ]
    order = sorted(set(keys))
    return [float(order.index(key)) for key in keys]


def _draw_new(
    space: Space, optimizer: CMA, taken: SeenConfigs, n: int, rng: Generator
) -> list[Proposal]:
    """Draw up to n new configurations from the distribution."""
    columns = _numeric_columns(space)
    optimizer.reseed_rng(int(rng.integers(2**31)))
    note = {"source": "cmaes", "generation": optimizer.generation}
    proposals: list[Proposal] = []
    refused: list[dict[str, Value]] = []
    for _ in range(n + RETRIES):
        if len(proposals) == n:
            break
        unit_P = space.drawn(rng.random(len(space.searched)))
        unit_P[columns] = optimizer.ask()
        params = space.decode(unit_P)
        if not space.allows(params):
            refused.append(params)
        elif params not in taken:
            taken.add(params)
            proposals.append(Proposal(params, note))
    pulled = islice(pull_new(space, refused, taken, rng), n - len(proposals))
    return proposals + [Proposal(params, note) for params in pulled]
