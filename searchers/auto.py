"""The method for those who have not chosen one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from numpy.random import Generator

from searchers.domains import Choice
from searchers.methods import load
from searchers.searcher import Observation, Proposal, Searcher
from searchers.space import Space

MOST_TRIALS = 1_000
MOST_PARAMETERS = 50
MOST_KINDS = 50


@dataclass(frozen=True)
class Auto:
    """`gp`, or `tpe` where a Gaussian process does not suit; the note says which.

    A Gaussian process makes the most of few trials, so it is the rule. The exceptions:

    * over 1,000 trials: its fit costs the cube of their number, TPE's grows linearly;
    * over 50 searched parameters: it has a length scale to learn for each;
    * an unordered choice of over 50 values: to its kernel all pairs of them are equally alike, so
      it learns about one value at a time. TPE does so at less cost.
    """

    uses_results: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        method = choose(space, len(history))
        searcher = cast(Searcher, load(method)())
        proposals = searcher.suggest(space, history, n, rng)
        return [replace(one, note={**one.note, "method": method}) for one in proposals]


def choose(space: Space, trials: int) -> str:
    """The method that suits a space after so many trials."""
    kinds = [
        domain.count
        for domain in space.values()
        if isinstance(domain, Choice) and not domain.ordered
    ]
    many = trials > MOST_TRIALS or len(space.searched) > MOST_PARAMETERS
    return "tpe" if many or max(kinds, default=0) > MOST_KINDS else "gp"
