"""Bayesian optimization with Gaussian processes, as a pure function of the history.

Two models take turns, so that no single assumption about the losses decides alone: losses with
compressed tails under a prior of long lengthscales, and Yeo-Johnson losses under short ones. Each
proposal maximizes log expected improvement; every fifth does so within the category that was
visited least, since plain improvement tends to polish the branch that it began with.

What a fit found is journaled in the proposal's note, and the next fit of that model starts there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from searchers.gp.evidence import Evidence
from searchers.gp.fits import MODELS, last_fit
from searchers.gp.maximise import Candidates, Focus
from searchers.gp.start import design_point
from searchers.gp.turn import Turn
from searchers.novelty import Taken
from searchers.searcher import Observation, Proposal
from searchers.space import Params, Space, SpaceError


@dataclass(frozen=True)
class GaussianProcess:
    """Proposes where improvement is expected; the first `initial` trials are quasi-random.

    Every `probe_every`-th proposal looks at the least-visited category (0: none does). Beyond
    `rows` trials the models see the best half of that number and the latest of the others, so that
    the cost of a proposal stays bounded. Results at different steps are never mixed: the models
    see the highest step with enough of them. Pending trials count as if they came out as
    predicted, failed ones as bad as the worst.
    """

    initial: int = 4
    probe_every: int = 5
    rows: int = 1000

    uses_results: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.initial < 1:
            raise ValueError(f"initial is {self.initial}; begin with 1 point or more")
        if self.probe_every < 0:
            raise ValueError(f"probe_every is {self.probe_every}; give 0 (never) or more")
        if self.rows < 10:
            raise ValueError(f"rows is {self.rows}; a model needs 10 or more")

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`; each proposal of a batch is pending for those after it."""
        asked = list(history)
        proposals: list[Proposal] = []
        for place in range(n):
            proposal = self._propose(space, asked, rng)
            if proposal is None:
                break
            proposals.append(proposal)
            asked.append(Observation(f"proposed {place}", proposal.params, proposal.note))
        return proposals

    def _propose(
        self, space: Space, history: Sequence[Observation], rng: Generator
    ) -> Proposal | None:
        """None: the space has no more configurations."""
        evidence = Evidence.of(space, history)
        if len(history) < self.initial:
            return _quasi_random(space, history, rng, _note("start", "the first trials"))
        if not evidence.is_enough:
            return _quasi_random(space, history, rng, _note("start", "too few results for a model"))
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                proposal = self._improve(space, history, evidence, rng)
        except SpaceError:
            raise
        except (ValueError, FloatingPointError) as error:  # LinAlgError is a ValueError
            note = _note("fallback", f"the model failed: {error}")
            return _quasi_random(space, history, rng, note)
        if proposal is None:
            note = _note("fallback", "all candidates of the model were tried before")
            return _quasi_random(space, history, rng, note)
        return proposal

    def _improve(
        self, space: Space, history: Sequence[Observation], evidence: Evidence, rng: Generator
    ) -> Proposal | None:
        """The new configuration of the highest expected improvement; None: all found are old."""
        model = MODELS[len(history) % len(MODELS)]
        turn = Turn.of(space, model, evidence.kept(self.rows))
        last = last_fit(history, model, len(space.searched))
        fitted = turn.fitted(last, len(evidence.loss_N), rng)
        posterior = turn.posterior(fitted)
        taken = Taken(space, (seen.params for seen in history))
        for focus in self._focuses(turn, len(history)):
            found = turn.search(posterior, focus, rng)
            place = _first_new(space, found, taken)
            if place is not None:
                params = space.decode(found.points.unit_NP[place])
                mean, deviation = turn.predicted(posterior, params)
                note = {
                    "source": "model",
                    "model": model.name,
                    "reason": _reason(space, focus, params),
                    "mean": mean,
                    "deviation": deviation,
                    "acquisition": float(found.value_N[place]),
                    "fit": fitted.note(),
                }
                return Proposal(params, note)
        return None

    def _focuses(self, turn: Turn, asked: int) -> list[Focus | None]:
        """Where to look, in turn: the least-visited category when it is its time, everywhere."""
        is_probe = self.probe_every > 0 and asked % self.probe_every == 0
        focus = turn.least_visited() if is_probe else None
        return [None] if focus is None else [focus, None]


def _note(source: str, reason: str) -> dict[str, object]:
    return {"source": source, "reason": reason}


def _first_new(space: Space, found: Candidates, taken: Taken) -> int | None:
    """The place of the best candidate that was never proposed; None: all were."""
    decoded = (space.decode(unit_P) for unit_P in found.points.unit_NP)
    return next((place for place, params in enumerate(decoded) if params not in taken), None)


def _reason(space: Space, focus: Focus | None, params: Params) -> str:
    if focus is None:
        return "largest expected improvement"
    name = space.searched[focus.parameter]
    return f"largest expected improvement where {name} is {params[name]!r}, which was tried least"


def _quasi_random(
    space: Space, history: Sequence[Observation], rng: Generator, note: dict[str, object]
) -> Proposal | None:
    """The next point of the design, whose seed the history's first such point has in its note."""
    seeds = (seen.note.get("design") for seen in history)
    seed = next((seed for seed in seeds if isinstance(seed, int)), None)
    if seed is None:
        seed = int(rng.integers(2**31))
    taken = Taken(space, (seen.params for seen in history))
    params = design_point(space, taken, len(history), seed, rng)
    return None if params is None else Proposal(params, {**note, "design": seed})
