"""Quasi-random search along one scrambled Sobol sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator
from scipy.stats import qmc

from searchers.novelty import Taken, can_repeat, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space

SKIPPED = 1_000  # points in a row that are refused or repeat, before one is drawn at random


@dataclass(frozen=True)
class Sobol:
    """Cover the space more evenly than random points do.

    All calls continue one sequence: the first draws its scramble, and each proposal's note holds
    the scramble and the point's index. Points that break a constraint, or repeat a configuration
    of a small space, are skipped.

    Source: Owen, Scrambling Sobol' and Niederreiter-Xing Points (1998).
    """

    uses_results: ClassVar[bool] = False
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        scramble, index = _where_it_stopped(history)
        if scramble is None:
            scramble = int(rng.integers(2**31))
        sequence = qmc.Sobol(len(space.searched), scramble=True, rng=scramble)
        if index >= 0:  # scipy 1.17 fails to go forward by 0
            sequence.fast_forward(index + 1)
        known = history if can_repeat(space) else []
        taken = Taken(space, (seen.params for seen in known))
        proposals: list[Proposal] = []
        skipped = 0
        while len(proposals) < n and skipped < SKIPPED:
            params = space.decode(sequence.random(1)[0])
            index += 1
            skipped += 1
            if space.allows(params) and params not in taken:
                taken.add(params)
                proposals.append(Proposal(params, {"scramble": scramble, "index": index}))
                skipped = 0
        note = {"scramble": scramble, "index": index}
        while len(proposals) < n and (last := sample_new(space, taken, rng)) is not None:
            proposals.append(Proposal(last, note))
        return proposals


def _where_it_stopped(history: Sequence[Observation]) -> tuple[int | None, int]:
    """The scramble and the last index in the notes; None and -1 before the first proposal."""
    for seen in reversed(history):
        scramble, index = seen.note.get("scramble"), seen.note.get("index")
        if isinstance(scramble, int) and isinstance(index, int):
            return scramble, index
    return None, -1
