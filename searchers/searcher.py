"""The protocol of a searcher: the trials that it sees, and the proposals that it returns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator

from searchers.space import Space
from searchers.values import Params

State = Literal["pending", "done", "failed"]
Note = Mapping[str, object]  # JSON values
# In the note of an earlier sweep's trial: it trained what its configuration stands for here.
TRIED = "tried"
REPEAT_OF = "repeat_of"  # in the note of a trial that repeats another one's configuration: its id


@dataclass(frozen=True)
class Observation:
    """A trial as a searcher sees it."""

    id: str
    params: Params
    note: Note = field(default_factory=dict)  # of the proposal
    loss: float | None = None  # lower is better; None: no result yet, or failed
    # (step, loss), steps increasing; of several objectives the first.
    curve: tuple[tuple[int, float], ...] = ()
    state: State = "pending"
    reason: str = ""  # of a failure or a stop: oom, diverged, rung, ...
    cost: float | None = None  # seconds
    # With several objectives: the loss of each at the trial's last step; `loss` is None then.
    losses: tuple[float, ...] = ()
    curves: tuple[tuple[tuple[int, float], ...], ...] = ()  # of the objectives after the first
    excess: tuple[float, ...] = ()  # over each limit; up to 0: the limit was kept
    # (last step, loss) of further trainings of this configuration, with other random numbers;
    # infinite: without steps.
    repeats: tuple[tuple[float, float], ...] = ()

    def mean_loss(self, loss: float) -> float:
        """Return the mean of a loss at the last step and of further trainings up to that step."""
        last = self.curve[-1][0] if self.curve else math.inf
        losses = [loss, *(again for step, again in self.repeats if step == last)]
        return loss if len(losses) == 1 else math.fsum(loss / len(losses) for loss in losses)

    @property
    def keeps_limits(self) -> bool:
        """Whether no limit was exceeded."""
        return self.exceeded == 0

    @property
    def exceeded(self) -> float:
        """The sum of the excesses over all limits; infinite where one is unknown (NaN)."""
        return sum(
            0.0 if excess <= 0 else math.inf if math.isnan(excess) else excess
            for excess in self.excess
        )


@dataclass(frozen=True)
class Proposal:
    """A configuration to try, with a note that is journaled and given back in the history."""

    params: Params
    note: Note = field(default_factory=dict)


class Searcher(Protocol):
    """A search method: a pure function of the space, the history and the generator.

    A class attribute `uses_results = False` says that proposals depend on earlier proposals alone,
    so that they can be made long before they are needed. `takes_several = True` says that the
    searcher learns from `Observation.losses`; a searcher that uses results and does not say so gets
    one objective. `completes = True` says that a model chooses the values that are not fixed
    (`suggest_fixed`); `must_repeat`, that options ask for repeated trials. `pace` (pace.py) says
    how fast it improves. An optional method `check(space)` raises a ValueError if the options do
    not suit a space; see `Finite` for another.
    """

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """Return the next n configurations, none of which is in the history or proposed twice.

        Only a trial that is repeated on purpose is: its note says so.

        Args:
            space: the space to search.
            history: every trial so far, pending ones included, in the order of proposal.
            n: the number of proposals.
            rng: the only source of randomness, made anew for each call (`call_rng`).

        Returns:
            n proposals; fewer, or none, when the space has no more configurations.
        """
        ...


@runtime_checkable
class Finite(Protocol):
    """A searcher whose proposals end before the space does."""

    def points(self, space: Space) -> Iterator[Params]:
        """Yield all configurations that it proposes."""


def call_rng(seed: int, proposed: int, tried: int = 0) -> Generator:
    """Return the generator for the call that follows `proposed` trials.

    Args:
        seed: of the search.
        proposed: the number of trials before it.
        tried: the number of trials of earlier searches whose draws must not come again.
    """
    return np.random.default_rng([seed, proposed, tried] if tried else [seed, proposed])


def suggest_fixed(
    searcher: Searcher,
    space: Space,
    history: Sequence[Observation],
    fixed: Params,
    n: int,
    rng: Generator,
) -> list[Proposal]:
    """Return the next configurations with fixed values (empty: any); see `Searcher.suggest`.

    Raises:
        SpaceError: no configuration has the fixed values.
        ValueError: the searcher does not keep them, as it makes configurations without its space.
    """
    part = space.fix(fixed) if fixed else space
    proposals = searcher.suggest(part, history, n, rng)
    for proposal in proposals:
        if fixed and not part.allows(proposal.params):
            raise ValueError(
                f"{type(searcher).__name__} proposed {dict(proposal.params)}, which is not allowed "
                f"with {dict(fixed)} fixed; a method keeps fixed values if it makes configurations "
                "by the sample, decode or build of the space that it is given"
            )
    return proposals
