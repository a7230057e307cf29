"""Grid search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

from numpy.random import Generator

from searchers.bounds import AT_ONCE, AtMost
from searchers.domains import Choice
from searchers.novelty import SeenConfigs
from searchers.searcher import Observation, Proposal
from searchers.space import Space
from searchers.values import Params

MARK = "grid"  # key in the notes of the grid's own proposals


@dataclass(frozen=True)
class Grid:
    """Try every combination, the last parameter changing fastest; nothing is random.

    Attributes:
        resolution: points of each continuous range; other ranges are tried value by value.
    """

    resolution: Annotated[int, AtMost(AT_ONCE)] = 5
    uses_results: ClassVar[bool] = False
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.resolution < 1:
            raise ValueError(f"resolution is {self.resolution}; give 1 or more points")

    def check(self, space: Space) -> None:
        """Refuse weights, normal ranges and priors of shares: a grid draws nothing."""
        keys = {
            name: "weights" if isinstance(space[name], Choice) else "normal"
            for name in space.drawn_otherwise
        }
        keys |= {shares.declared: "prior" for shares in space.shares if shares.prior_K}
        keys |= {each.declared: "concentration" for each in space.shares if each.concentration != 1}
        for name, key in keys.items():
            message = f"grid tries the values of {name} one by one, and {key} is about draws"
            raise ValueError(f"{message}; leave {key} out, or search by random")

    def points(self, space: Space) -> Iterator[Params]:
        """Yield the whole grid."""
        return space.grid(self.resolution)

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        # Of a part of the grid, proposals do not say how far the whole grid is.
        ahead = [] if space.fixed else self._ahead(space, history, n)
        if ahead:
            return ahead
        # A choice that has grown has left gaps behind.
        taken = SeenConfigs(space, (seen.params for seen in history))
        left = (params for params in self.points(space) if params not in taken)
        return [Proposal(params) for params in islice(left, n)]

    def _ahead(self, space: Space, history: Sequence[Observation], n: int) -> list[Proposal]:
        """Return the next points of the grid."""
        last = next((seen for seen in reversed(history) if MARK in seen.note), None)
        others = SeenConfigs(space, (seen.params for seen in history if MARK not in seen.note))
        remaining = space.grid(self.resolution, after=None if last is None else last.params)
        unseen = (params for params in remaining if params not in others)
        return [Proposal(params, {MARK: self.resolution}) for params in islice(unseen, n)]
