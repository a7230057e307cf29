"""The method for those who have not chosen one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from numpy.random import Generator

from searchers.earlier import informed
from searchers.methods import load
from searchers.searcher import Observation, Proposal, Searcher
from searchers.space import Space

# Everywhere. Rules by parameters, trials, trials at once, kinds of a choice and metrics were
# measured, and none is left: docs/searchers.md has the figures. Whoever finds where another method
# is the better one makes this a choice by space and history.
METHOD = "gp"


@dataclass(frozen=True)
class Auto:
    """The method that suits; the note of a proposal names it."""

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def after(self, earlier: Sequence[Observation]) -> "Informed":
        """The same that knows earlier trials."""
        return Informed(tuple(earlier))

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        return Informed().suggest(space, history, n, rng)


@dataclass(frozen=True)
class Informed:
    """`auto` with the trials of earlier sweeps."""

    earlier: tuple[Observation, ...] = ()

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`."""
        chosen = informed(cast(Searcher, load(METHOD)()), self.earlier)
        proposals = chosen.suggest(space, history, n, rng)
        return [replace(one, note={**one.note, "method": METHOD}) for one in proposals]
