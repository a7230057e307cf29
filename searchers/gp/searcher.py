"""Bayesian optimization with Gaussian processes, as a pure function of the history.

Two models take turns, so that no single assumption about the losses decides alone: losses with
compressed tails under a prior of long lengthscales, and Yeo-Johnson losses under short ones. Each
proposal maximizes log expected improvement, times the chance that the trial does not fail; every
fifth does so within the category that was visited least and against the best there, since plain
improvement tends to polish the branch that it began with. Several objectives and limits have a way
of their own (several.py).

What a fit found is journaled in the proposal's note, and the next fit of that model starts there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from searchers.gp.acquisition import Acquisition
from searchers.gp.beliefs import Belief, LogPrior, check
from searchers.gp.cost import COST, learned_cost
from searchers.gp.evidence import Evidence
from searchers.gp.fits import MODELS, Model
from searchers.gp.maximise import Candidates
from searchers.gp.several import propose_several
from searchers.gp.start import design_point
from searchers.gp.turn import FAILURE, Turn
from searchers.novelty import Taken
from searchers.searcher import Observation, Proposal
from searchers.space import Params, Space, SpaceError

MOST_DESIGNED = 12  # quasi-random trials with several objectives


@dataclass(frozen=True)
class GaussianProcess:
    """Proposes where improvement is expected; the first `initial` trials are quasi-random.

    Every `probe_every`-th proposal looks at the least-visited category (0: none does; with several
    objectives or limits none does either). Beyond `rows` results the models see the best half of
    that number and the latest of the others, so that the cost of a proposal stays bounded. With
    `per_second` improvement counts by the second of a step, as far as the trials' times tell.
    `beliefs` say where good values are thought to be, such as
    {"lr": {"value": 1e-3, "width": 0.2}}; they fade as results come in.
    """

    initial: int = 4
    probe_every: int = 5
    rows: int = 240
    per_second: bool = False
    beliefs: Mapping[str, Belief] = field(default_factory=dict)

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.initial < 1:
            raise ValueError(f"initial is {self.initial}; begin with 1 point or more")
        if self.probe_every < 0:
            raise ValueError(f"probe_every is {self.probe_every}; give 0 (never) or more")
        if self.rows < 10:
            raise ValueError(f"rows is {self.rows}; a model needs 10 or more")
        beliefs = {name: _belief(name, one) for name, one in self.beliefs.items()}
        object.__setattr__(self, "beliefs", beliefs)

    def check(self, space: Space) -> None:
        """Raise a ValueError where a belief does not fit the space."""
        check(space, self.beliefs)

    def after(self, earlier: Sequence[Observation]) -> "Informed":
        """The searcher that knows earlier trials of a space like this one."""
        return Informed(self, tuple(earlier))

    def suggest(
        self,
        space: Space,
        history: Sequence[Observation],
        n: int,
        rng: Generator,
        earlier: Sequence[Observation] = (),
    ) -> list[Proposal]:
        """See `Searcher`; each proposal of a batch is pending for those after it.

        Args:
            earlier: trials of other sweeps, whose configurations are of this space. How much
                their losses say of this sweep's is learned: the origin is a column of the model.
        """
        asked = list(history)
        proposals: list[Proposal] = []
        for place in range(n):
            proposal = self._propose(space, asked, earlier, rng)
            if proposal is None:
                break
            proposals.append(proposal)
            asked.append(Observation(f"proposed {place}", proposal.params, proposal.note))
        return proposals

    def _propose(
        self,
        space: Space,
        history: Sequence[Observation],
        earlier: Sequence[Observation],
        rng: Generator,
    ) -> Proposal | None:
        """None: the space has no more configurations."""
        evidence = Evidence.of(history, earlier)
        if len(history) + len(earlier) < self._design_size(space, [*earlier, *history]):
            return _quasi_random(space, history, rng, _note("start", "the first trials"))
        if not (space.searched and evidence.is_enough):
            return _quasi_random(space, history, rng, _note("start", "too few results for a model"))
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                proposal = self._improve(space, history, earlier, evidence, rng)
        except SpaceError:
            raise
        except (ValueError, FloatingPointError) as error:  # LinAlgError is a ValueError
            note = _note("fallback", f"the model failed: {error}")
            return _quasi_random(space, history, rng, note)
        if proposal is None:
            note = _note("fallback", "all candidates of the model were tried before")
            return _quasi_random(space, history, rng, note)
        return proposal

    def _design_size(self, space: Space, history: Sequence[Observation]) -> int:
        """How many trials are quasi-random: more with several objectives, since a front is wide."""
        if not any(seen.losses for seen in history):
            return self.initial
        return max(self.initial, min(2 * len(space.searched), MOST_DESIGNED))

    def _improve(
        self,
        space: Space,
        history: Sequence[Observation],
        earlier: Sequence[Observation],
        evidence: Evidence,
        rng: Generator,
    ) -> Proposal | None:
        """The new configuration of the highest acquisition; None: all that were found are old."""
        model = MODELS[len(history) % len(MODELS)]
        if any(seen.losses or seen.excess for seen in (*earlier, *history)):
            terms, fits = self._terms(space, model, history, rng)
            several = propose_several(space, history, earlier, terms, self.rows, rng)
            place = _first_new(space, several.candidates, history)
            return None if place is None else several.proposal(space, place, fits)
        turn = Turn.of(space, model, evidence.kept(self.rows))
        for one in self._looks(turn, len(history)):
            proposal = self._best_of(one, history, len(evidence.loss_R), rng)
            if proposal is not None:
                return proposal
        return None

    def _looks(self, turn: Turn, asked: int) -> Iterator[Turn]:
        """When it is time for that, the turn within the least-visited category; the turn itself."""
        is_probe = self.probe_every > 0 and asked % self.probe_every == 0
        focus = turn.least_visited() if is_probe else None
        if focus is not None:
            yield turn.narrowed(focus)
        yield turn

    def _best_of(
        self, turn: Turn, history: Sequence[Observation], results: int, rng: Generator
    ) -> Proposal | None:
        """The new configuration that a turn thinks best; None: all that it found are old."""
        terms, fits = self._terms(turn.space, turn.model, history, rng)
        fitted = turn.fitted(history, results, rng)
        process = turn.posterior(fitted)
        fits[turn.outcome] = fitted.note()
        failure = turn.chance(history, rng)
        if failure is not None:
            terms.append(failure[0])
            fits[FAILURE] = failure[1].note()
        found = turn.search(process, terms, rng)
        place = _first_new(turn.space, found, history)
        if place is None:
            return None
        params = turn.space.decode(found.points.unit_NP[place])
        mean, deviation = turn.predicted(process, params)
        note = {
            "source": "model",
            "model": turn.model.name,
            "reason": _reason(turn, params),
            "mean": mean,
            "deviation": deviation,
            "acquisition": float(found.value_N[place]),
            "fits": fits,
        }
        return Proposal(params, note)

    def _terms(
        self, space: Space, model: Model, history: Sequence[Observation], rng: Generator
    ) -> tuple[list[Acquisition], dict[str, object]]:
        """What the options add to the acquisition, and the fits for it."""
        terms, fits = list[Acquisition](), dict[str, object]()
        cost = learned_cost(space, model, history, self.rows, rng) if self.per_second else None
        if cost is not None:
            terms.append(cost[0])
            fits[COST] = cost[1].note()
        if self.beliefs:
            terms.append(LogPrior.of(space, self.beliefs, len(history)))
        return terms, fits


@dataclass(frozen=True)
class Informed:
    """A searcher with the trials of earlier sweeps."""

    searcher: GaussianProcess
    earlier: tuple[Observation, ...]

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`."""
        return self.searcher.suggest(space, history, n, rng, self.earlier)


def _belief(name: str, said: Belief | Mapping[str, Any]) -> Belief:
    """A belief as such, or as it stands in a spec."""
    if isinstance(said, Belief):
        return said
    try:
        return Belief(**said)
    except TypeError as error:
        raise ValueError(f"beliefs: {name} is {said!r}; write {{value: V, width: W}}") from error


def _note(source: str, reason: str) -> dict[str, object]:
    return {"source": source, "reason": reason}


def _first_new(space: Space, found: Candidates, history: Sequence[Observation]) -> int | None:
    """The place of the best candidate that was never proposed; None: all were."""
    taken = Taken(space, (seen.params for seen in history))
    decoded = (space.decode(unit_P) for unit_P in found.points.unit_NP)
    return next((place for place, params in enumerate(decoded) if params not in taken), None)


def _reason(turn: Turn, params: Params) -> str:
    if turn.focus is None:
        return "largest expected improvement"
    name = turn.space.searched[turn.focus.parameter]
    return f"largest expected improvement where {name} is {params[name]!r}, which was tried least"


def _quasi_random(
    space: Space, history: Sequence[Observation], rng: Generator, note: dict[str, object]
) -> Proposal | None:
    """The next point of the design, whose seed the history's first such point has in its note."""
    seeds = (seen.note.get("design") for seen in history)
    seed = next((seed for seed in seeds if isinstance(seed, int) and seed >= 0), None)
    if seed is None:
        seed = int(rng.integers(2**31))
    taken = Taken(space, (seen.params for seen in history))
    params = design_point(space, taken, len(history), seed, rng)
    return None if params is None else Proposal(params, {**note, "design": seed})
