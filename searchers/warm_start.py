"""Warm starts: results of earlier sweeps, for searchers that can learn from them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from searchers.methods import METHODS, load_method
from searchers.searcher import Observation, Searcher


@runtime_checkable
class WarmStartable(Protocol):
    """A searcher that takes the results of earlier sweeps as prior data."""

    def after(self, earlier: Sequence[Observation]) -> Searcher:
        """Return the searcher with these results."""


def warm_started(searcher: Searcher, earlier: Sequence[Observation]) -> Searcher:
    """Return the searcher with earlier results, or unchanged if it cannot take them."""
    return searcher.after(earlier) if earlier and isinstance(searcher, WarmStartable) else searcher


def warm_startable_methods() -> list[str]:
    """Return the names of the methods that take earlier results."""
    return [*filter(learns, METHODS)]


def learns(method: str) -> bool:
    """Return whether a method is one of ours that takes earlier results."""
    return method in METHODS and issubclass(load_method(method), WarmStartable)
