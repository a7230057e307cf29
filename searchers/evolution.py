"""CMA-ES: a normal distribution over the unit cube that moves to where the best results lie.

Axes: R results, D numeric parameters. The distribution is rebuilt at every call by telling the
results again, in the order of proposal, so that it needs no state beside the history; 1,000 results
in 10 dimensions take 20 ms.
Sources: Hansen, The CMA Evolution Strategy: A Tutorial (2016), figure 6, as the package `cmaes` has
it; restarts with twice the population: Auger and Hansen, IPOP-CMA-ES (2005), section 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from cmaes import CMA
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.domains import Choice
from searchers.fidelity import Scored, comparable
from searchers.novelty import Taken, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space

Array = NDArray[np.float64]

WIDTH = 1 / 6  # the first standard deviation: the cube's faces are three away
RETRIES = 50  # for a proposal that breaks a constraint or repeats; then one is drawn at random


@dataclass(frozen=True)
class CMAES:
    """Covariance matrix adaptation, for spaces of numbers and hundreds of trials.

    Ranges and ordered choices are its dimensions. The values of unordered choices are drawn at
    random, whatever was seen: take another method where they matter. A conditional parameter is a
    dimension that learns nothing from the trials in which it was inactive. A generation is complete
    with as many results as the population, whichever they are, so parallel trials and those that
    were added all count; pending ones are not looked at, since proposals are random draws anyhow.
    Failed trials rank last, those that exceed limits before them, by how far they do.

    Attributes:
        population: results between two updates of the distribution; 0: 4 + 3 ln(D), rounded down.
    """

    population: int = 0
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
        taken = Taken(space, (seen.params for seen in history))
        proposals: list[Proposal] = []
        if _numbers(space):
            scored = comparable(history, enough=len(space.searched) + 1)
            proposals = _drawn(space, evolved(space, scored, self.population), taken, n, rng)
        while len(proposals) < n and (params := sample_new(space, taken, rng)) is not None:
            proposals.append(Proposal(params, {"source": "random"}))
        return proposals


def evolved(space: Space, scored: Sequence[Scored], population: int = 0) -> CMA:
    """The distribution over the space's numbers after all full generations of the results."""
    places = _numbers(space)
    optimizer = _fresh(len(places), population or None)
    begin, size = 0, optimizer.population_size
    while begin + size <= len(scored):
        generation = scored[begin : begin + size]
        points = [_point(space, places, one, optimizer.mean) for one in generation]
        optimizer.tell(list(zip(points, _ranks(generation), strict=True)))
        begin += size
        if optimizer.should_stop():
            size *= 2
            optimizer = _fresh(len(places), size)
    return optimizer


def _numbers(space: Space) -> list[int]:
    """The places of the parameters that are dimensions of the distribution."""
    domains = [space[name] for name in space.searched]
    return [
        place
        for place, domain in enumerate(domains)
        if not isinstance(domain, Choice) or domain.ordered
    ]


def _fresh(dimensions: int, population: int | None) -> CMA:
    bounds_D2 = np.tile([0.0, 1.0], (dimensions, 1))
    mean_D = np.full(dimensions, 0.5)
    return CMA(mean_D, WIDTH, bounds_D2, seed=0, population_size=population)


def _point(space: Space, places: list[int], one: Scored, mean_D: Array) -> Array:
    """Where a trial lies, (D,); at the mean in what was inactive, which moves nothing there."""
    params = one.observation.params
    names = [space.searched[place] for place in places]
    active_D = np.array([name in params for name in names])
    return np.where(active_D, space.encode(params)[places], mean_D)


def _ranks(generation: Sequence[Scored]) -> list[float]:
    """The rank of each result, which is all that the method looks at; equal ones share theirs."""
    keys = [
        (math.inf, 0.0) if one.loss is None else (one.observation.exceeded, one.loss)
        for one in generation
    ]
    order = sorted(set(keys))
    return [float(order.index(key)) for key in keys]


def _drawn(space: Space, optimizer: CMA, taken: Taken, n: int, rng: Generator) -> list[Proposal]:
    """Up to n new configurations from the distribution."""
    places = _numbers(space)
    optimizer.reseed_rng(int(rng.integers(2**31)))
    found: list[Proposal] = []
    for _ in range(n + RETRIES):
        if len(found) == n:
            break
        unit_P = rng.random(len(space.searched))
        unit_P[places] = optimizer.ask()
        params = space.decode(unit_P)
        if params not in taken and space.allows(params):
            taken.add(params)
            note = {"source": "cmaes", "generation": optimizer.generation}
            found.append(Proposal(params, note))
    return found
