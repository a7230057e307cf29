"""What a searcher sees and says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.random import Generator

from searchers.space import Space
from searchers.values import Params

State = Literal["pending", "done", "failed"]
Note = Mapping[str, object]  # JSON values


@dataclass(frozen=True)
class Observation:
    """What a searcher may see of a trial."""

    id: str
    params: Params
    note: Note = field(default_factory=dict)  # what the searcher said with its proposal
    loss: float | None = None  # lower is better; None: none yet, or failed
    # (step, loss), steps increasing; the first of several objectives stands for all of them.
    curve: tuple[tuple[int, float], ...] = ()
    state: State = "pending"
    reason: str = ""  # why it failed or was stopped: oom, diverged, rung, ...
    cost: float | None = None  # seconds
    # One for each of several objectives, at the trial's last step; `loss` is None then.
    losses: tuple[float, ...] = ()
    excess: tuple[float, ...] = ()  # by how much each limit was exceeded; up to 0: it was kept

    @property
    def keeps_limits(self) -> bool:
        """Whether no limit was exceeded."""
        return self.exceeded == 0

    @property
    def exceeded(self) -> float:
        """By how much limits were exceeded, all together; infinite where that is not known."""
        return sum(0.0 if one <= 0 else math.inf if math.isnan(one) else one for one in self.excess)


@dataclass(frozen=True)
class Proposal:
    """A configuration to try, and why: the note is journaled and given back in the history."""

    params: Params
    note: Note = field(default_factory=dict)


class Searcher(Protocol):
    """Proposes configurations: a pure function of the space, the history and the generator.

    A class attribute `uses_results = False` says that proposals depend on earlier proposals alone,
    so that they can be made long before they are needed. `takes_several = True` says that it learns
    from `Observation.losses`; a searcher that uses results and does not say so gets one objective.
    A method `check(space)`, where there is one, raises a ValueError if options do not suit a space.
    """

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """The next n configurations, none of which is in the history or proposed twice.

        Args:
            space: what to search.
            history: every trial so far, pending ones included, in the order of proposal.
            n: how many are wanted.
            rng: the only source of randomness, made anew for each call (`call_rng`).

        Returns:
            n proposals; fewer, or none, when the space has no more configurations.
        """
        ...


def call_rng(seed: int, proposed: int) -> Generator:
    """The generator of the call that comes after `proposed` trials."""
    return np.random.default_rng([seed, proposed])
