"""The search method for users who have not chosen one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, cast

from numpy.random import Generator

from searchers.methods import load_method
from searchers.pace import GAUSSIAN_PROCESS, Pace
from searchers.searcher import Observation, Proposal, Searcher
from searchers.space import Space
from searchers.warm_start import warm_started

# For every space. Rules by the numbers of parameters, trials, parallel trials, by kinds of choices
# and by metrics were measured, and none was kept: benchmarks/RESULTS.md has figures. Where another
# method turns out to be better, choose here by space and history.
METHOD = "gp"


@dataclass(frozen=True)
class Auto:
    """The default method, `METHOD`; the note of a proposal names it."""

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    completes: ClassVar[bool] = True
    pace: ClassVar[Pace] = GAUSSIAN_PROCESS  # of `METHOD`
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def after(self, earlier: Sequence[Observation]) -> "Informed":
        """Return this method with the trials of earlier sweeps."""
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

    @cached_property
    def _searcher(self) -> Searcher:
        """The method, which keeps its fits of the earlier sweeps."""
        return warm_started(cast(Searcher, load_method(METHOD)()), self.earlier)

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`."""
        proposals = self._searcher.suggest(space, history, n, rng)
        return [
            replace(proposal, note={**proposal.note, "method": METHOD}) for proposal in proposals
        ]
