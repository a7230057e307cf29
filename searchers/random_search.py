"""Random search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from searchers.novelty import SeenConfigs, can_repeat, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space


@dataclass(frozen=True)
class Random:
    """Sample the space: uniformly, on a log scale where it has one, or as its parameters say.

    Source: Bergstra & Bengio, Random Search for Hyper-Parameter Optimization (2012).
    """

    uses_results: ClassVar[bool] = False
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        if not can_repeat(space):  # without the cost of looking for repeats
            return [Proposal(space.sample(rng)) for _ in range(n)]
        taken = SeenConfigs(space, (seen.params for seen in history))
        samples = (sample_new(space, taken, rng) for _ in range(n))
        return [Proposal(params) for params in samples if params is not None]
