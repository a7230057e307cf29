"""The search method for users who have not chosen one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, cast

from numpy.random import Generator

from searchers.methods import load
from searchers.searcher import Observation, Proposal, Searcher, under_early_stopping
from searchers.space import Space
from searchers.warm_start import warm_started

# For every space. Rules by the numbers of parameters, trials, parallel trials, by kinds of choices
# and by metrics were measured, and none was kept: docs/searchers.md has the figures. Where another
# method turns out to be better, choose here by space and history.
METHOD = "gp"


@dataclass(frozen=True)
class Auto:
    """The default method, `METHOD`; the note of a proposal names it."""

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def under_early_stopping(self) -> "Informed":
        """Return this method for a sweep that stops trials early."""
        return Informed().under_early_stopping()

    def after(self, earlier: Sequence[Observation]) -> "Informed":
        """Return this method with the trials of earlier sweeps."""
        return Informed().after(earlier)

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        return Informed().suggest(space, history, n, rng)


@dataclass(frozen=True)
class Informed:
    """`auto` with what is known of the sweep."""

    earlier: tuple[Observation, ...] = ()
    stops_early: bool = False

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True

    @cached_property
    def _searcher(self) -> Searcher:
        """The method, which keeps its fits of the earlier sweeps."""
        searcher = cast(Searcher, load(METHOD)())
        if self.stops_early:
            searcher = under_early_stopping(searcher)
        return warm_started(searcher, self.earlier)

    def under_early_stopping(self) -> "Informed":
        """Return it for a sweep that stops trials early."""
        return replace(self, stops_early=True)

    def after(self, earlier: Sequence[Observation]) -> "Informed":
        """Return it with the trials of earlier sweeps."""
        return replace(self, earlier=tuple(earlier))

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`."""
        proposals = self._searcher.suggest(space, history, n, rng)
        return [
            replace(proposal, note={**proposal.note, "method": METHOD}) for proposal in proposals
        ]
