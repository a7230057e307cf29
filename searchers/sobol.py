"""Quasi-random search along one scrambled Sobol sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator
from scipy.stats import qmc

from searchers.novelty import SeenConfigs, can_repeat, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space

MAX_SKIPPED = 1_000  # points in a row that are refused or repeat; then points are random


@dataclass(frozen=True)
class Sobol:
    """Cover the space more evenly than random points do, by weights and normal ranges if there are.

    All calls continue one sequence: the first call draws the scramble, and the note of each
    proposal holds the scramble and the index of the point. Points that break a constraint, or
    repeat a configuration of a small space, are skipped.

    Source: Owen, Scrambling Sobol' and Niederreiter-Xing Points (1998).
    """

    uses_results: ClassVar[bool] = False
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        scramble, index = _last_point(history)
        if scramble is None:
            scramble = int(rng.integers(2**31))
        sequence = qmc.Sobol(len(space.searched), scramble=True, rng=scramble)
        if index >= 0:  # scipy 1.17 cannot fast-forward by 0
            sequence.fast_forward(index + 1)
        earlier = history if can_repeat(space) else []
        taken = SeenConfigs(space, (seen.params for seen in earlier))
        proposals: list[Proposal] = []
        skipped = 0
        while len(proposals) < n and skipped < MAX_SKIPPED:
            params = space.decode(space.drawn(sequence.random(1)[0]))
            index += 1
            skipped += 1
            if space.allows(params) and params not in taken:
                taken.add(params)
                proposals.append(Proposal(params, {"scramble": scramble, "index": index}))
                skipped = 0
        note = {"scramble": scramble, "index": index}
        while len(proposals) < n and (sampled := sample_new(space, taken, rng)) is not None:
            proposals.append(Proposal(sampled, note))
        return proposals


def _last_point(history: Sequence[Observation]) -> tuple[int | None, int]:
    """Return the last scramble and index in the notes; None and -1 before the first proposal."""
    for seen in reversed(history):
        scramble, index = seen.note.get("scramble"), seen.note.get("index")
        if isinstance(scramble, int) and isinstance(index, int):
            return scramble, index
    return None, -1
