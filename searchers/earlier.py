"""Results from before a search began, for a searcher that can learn from them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from searchers.methods import METHODS, load
from searchers.searcher import Observation, Searcher


@runtime_checkable
class Learned(Protocol):
    """A searcher that takes earlier results as prior data."""

    def after(self, earlier: Sequence[Observation]) -> Searcher:
        """The searcher that knows them."""


def informed(searcher: Searcher, earlier: Sequence[Observation]) -> Searcher:
    """The searcher with what was found before; one that can't take it comes back unchanged."""
    return searcher.after(earlier) if earlier and isinstance(searcher, Learned) else searcher


def learners() -> list[str]:
    """The names of the methods that take earlier results."""
    return [name for name in METHODS if issubclass(load(name), Learned)]
