"""Bayesian optimization with Gaussian processes, as a pure function of the history.

Two models take turns, so that no single assumption about the losses decides alone: losses with
compressed tails under a prior of long lengthscales, and Yeo-Johnson losses under short ones. Each
proposal maximizes log expected improvement, times the probability that the trial does not fail.
Every fifth proposal does so within the least-visited category and against the best there, since
plain improvement tends to polish the branch that it began with. Several objectives and limits are
handled in multi_objective.py.

The result of a fit is journaled in the proposal's note, and the next fit of that model starts from
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator

from searchers.bounds import AT_ONCE, COUNT, AtMost
from searchers.gp.acquisition import Acquisition
from searchers.gp.cost import COST, learned_cost
from searchers.gp.fits import MODELS, Model
from searchers.gp.initial_design import design_point
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.learned.roles import Names
from searchers.gp.learned.roles import check as check_roles
from searchers.gp.learned.start import portfolio
from searchers.gp.maximise import Candidates
from searchers.gp.multi_objective import propose_several
from searchers.gp.priors import Belief, LogPrior, check
from searchers.gp.proposer import FAILURE, STOPPED, Proposer
from searchers.gp.repeats import is_repeat_due, repeated
from searchers.gp.training_data import Evidence
from searchers.gp.transfer import EarlierSweeps
from searchers.magnitudes import in_range
from searchers.novelty import SeenConfigs
from searchers.pace import GAUSSIAN_PROCESS, Pace
from searchers.searcher import Observation, Proposal
from searchers.space import Params, Space

MAX_DESIGN_SIZE = 12  # quasi-random trials with several objectives, at most
# Sources of the first trials, in their notes.
START, LEARNED, EARLIER = "start", "learned prior", "earlier sweeps"


@dataclass(frozen=True)
class GaussianProcess:
    """Proposes where improvement is expected; the first `initial` trials are quasi-random.

    Every `probe_every`-th proposal is made within the least-visited category (0: none is; with
    several objectives or limits none is either). Beyond `rows` results the models are given the
    best half of that number and the latest of the others, so that the cost of a proposal stays
    bounded. With `per_second` improvement is divided by the seconds of a step, as far as the
    trials' times tell. `priors` say where good values are thought to be, such as
    {"lr": {"value": 1e-3, "width": 0.2}}; they fade as results come in. `learned_prior` says that
    a sweep may begin with what other sweeps of the same family of models have in common; `roles`
    are names by which it knows parameters, such as {"alpha1": "lr"}; None hides one from it. With
    `repeats` every fifth trial repeats the configuration that is predicted to be best, with other
    random numbers, while the metric is found to be noisy.
    """

    initial: Annotated[int, AtMost(AT_ONCE)] = 4
    probe_every: Annotated[int, AtMost(COUNT)] = 5
    rows: Annotated[int, AtMost(AT_ONCE)] = 240
    per_second: bool = False
    priors: Mapping[str, Belief] = field(default_factory=dict)
    learned_prior: bool = True
    roles: Names = field(default_factory=dict)
    repeats: bool = False

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True
    completes: ClassVar[bool] = True
    pace: ClassVar[Pace] = GAUSSIAN_PROCESS
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.initial < 1:
            raise ValueError(f"initial is {self.initial}; begin with 1 point or more")
        if self.probe_every < 0:
            raise ValueError(f"probe_every is {self.probe_every}; give 0 (never) or more")
        if self.rows < 10:
            raise ValueError(f"rows is {self.rows}; a model needs 10 or more")
        priors = {name: _read_belief(name, belief) for name, belief in self.priors.items()}
        object.__setattr__(self, "priors", priors)

    @property
    def must_repeat(self) -> bool:
        """Whether repeats of trials were asked for."""
        return self.repeats

    def check(self, space: Space) -> None:
        """Raise a ValueError where a belief or a role does not fit the space."""
        check(space, self.priors)
        check_roles(space, self.roles)

    def after(self, earlier: Sequence[Observation]) -> "WarmStarted":
        """Return the searcher with earlier trials of a space like this one."""
        return WarmStarted(self, tuple(earlier))

    def suggest(
        self,
        space: Space,
        history: Sequence[Observation],
        n: int,
        rng: Generator,
        earlier: Sequence[Observation] = (),
        sweeps: EarlierSweeps | None = None,
    ) -> list[Proposal]:
        """See `Searcher`; each proposal of a batch is pending for those after it.

        Args:
            earlier: trials of other sweeps, whose configurations are of this space.
            sweeps: what these tell; None: nothing.
        """
        seen = in_range([*earlier, *history])
        earlier, extended = seen[: len(earlier)], [*seen[len(earlier) :]]
        proposals: list[Proposal] = []
        for index in range(n):
            proposal = self._propose(space, extended, earlier, sweeps, rng)
            if proposal is None:
                break
            proposals.append(proposal)
            extended.append(Observation(f"proposed {index}", proposal.params, proposal.note))
        return proposals

    def _propose(
        self,
        space: Space,
        history: Sequence[Observation],
        earlier: Sequence[Observation],
        sweeps: EarlierSweeps | None,
        rng: Generator,
    ) -> Proposal | None:
        """Return the next proposal; None: the space has no more configurations."""
        evidence = Evidence.of(history if sweeps else [*earlier, *history])
        told_before = 0 if sweeps else len(earlier)
        # Several objectives have a wide front, and get more quasi-random trials.
        has_several = any(seen.losses for seen in [*earlier, *history])
        wide = min(2 * len(space.searched), MAX_DESIGN_SIZE) if has_several else 0
        is_first = len(history) + told_before < max(self.initial, wide)
        if is_first or not (space.searched and evidence.is_enough):
            best = _best_of_earlier(history, sweeps)
            return self._initial(space, history, rng) if best is None else best
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                proposal = self._propose_by_model(space, history, earlier, sweeps, evidence, rng)
        except (np.linalg.LinAlgError, FloatingPointError) as error:
            note = _note("fallback", f"the model failed: {error}")
            return _quasi_random(space, history, rng, note)
        if proposal is None:
            note = _note("fallback", "all candidates of the model were tried before")
            return _quasi_random(space, history, rng, note)
        return proposal

    def _initial(
        self, space: Space, history: Sequence[Observation], rng: Generator
    ) -> Proposal | None:
        """Return the next of the first trials; None: the space has no more configurations.

        Many trials may start before there are results. Beyond the first ones every other trial is
        quasi-random, for where the learned prior is wrong.
        """
        learned = self.learned(space) if history else None  # the centre comes first
        trusted = len(history) < self.initial or len(history) % 2 == 0
        is_wanted = trusted and not any(seen.losses for seen in history)
        if learned is not None and is_wanted:
            tried = [seen.params for seen in history]
            taken = SeenConfigs(space, tried)
            for params in portfolio(space, learned, tried, rng):
                if params not in taken:
                    reason = f"good on other data, in tables of the family {learned.family}"
                    return Proposal(params, _note(LEARNED, reason))
        return _quasi_random(space, history, rng, _note(START, "the first trials"))

    def learned(self, space: Space) -> LearnedPrior | None:
        """Return the learned prior of a space; None: there is none, or it is switched off."""
        if not self.learned_prior:
            return None
        return LearnedPrior.of(space, self.roles, without=self.priors)

    def _propose_by_model(
        self,
        space: Space,
        history: Sequence[Observation],
        earlier: Sequence[Observation],
        sweeps: EarlierSweeps | None,
        evidence: Evidence,
        rng: Generator,
    ) -> Proposal | None:
        """Return the new configuration of the highest acquisition; None: all candidates are old."""
        model = MODELS[len(history) % len(MODELS)]
        if any(seen.losses or seen.excess for seen in (*earlier, *history)):
            terms, fits = self._optional_terms(space, model, history, rng)
            result = propose_several(space, history, earlier, terms, self.rows, rng)
            index = _first_new(space, result.candidates, history)
            return None if index is None else result.proposal(space, index, fits)
        failures = evidence
        proposer = Proposer.of(space, model, evidence.bounded(self.rows), self.learned(space))
        if sweeps is not None:
            if sweeps.sweeps:  # there may be none with enough results, and failures nevertheless
                proposer = replace(proposer, informed=sweeps.informed)
            failures = Evidence.of([*earlier, *history])
        proposer = proposer.in_best_scale(history, len(evidence.loss_R), rng)
        if self.repeats and is_repeat_due(history) and not space.fixed:
            proposal = repeated(proposer, history, len(evidence.loss_R), rng)
            if proposal is not None:
                return proposal
        for attempt in self._proposers_to_try(proposer, len(history)):
            proposal = self._best_of(attempt, history, evidence, failures, rng)
            if proposal is not None:
                return proposal
        return None

    def _proposers_to_try(self, proposer: Proposer, trials: int) -> Iterator[Proposer]:
        """Yield the proposer within the least-visited category, if a probe is due; then itself."""
        is_probe = self.probe_every > 0 and trials % self.probe_every == 0
        is_probe = is_probe and not proposer.space.fixed
        fixed = proposer.least_visited() if is_probe else None
        if fixed is not None:
            yield proposer.within_category(fixed)
        yield proposer

    def _best_of(
        self,
        proposer: Proposer,
        history: Sequence[Observation],
        evidence: Evidence,
        failures: Evidence,
        rng: Generator,
    ) -> Proposal | None:
        """Return the best new configuration that `proposer` finds; None: all found are old.

        Args:
            proposer: it may know a part of the evidence.
            history: its notes hold earlier fits.
            evidence: all of it, whose growth makes new fits due.
            failures: the same, with the trials of earlier sweeps, which tell where trials fail.
            rng: for the fits and the search.
        """
        terms, fits = self._optional_terms(proposer.space, proposer.model, history, rng)
        fitted = proposer.fitted(history, len(evidence.loss_R), rng)
        process = proposer.posterior(fitted)
        fits[proposer.outcome] = fitted.note()
        failing = proposer if failures is evidence else proposer.given(failures.bounded(self.rows))
        failure = failing.success_probability(history, failures.ended, rng)
        if failure is not None:
            terms.append(failure[0])
            fits[FAILURE] = failure[1].note()
        passing = proposer.pass_probability(history, evidence.ended, rng)
        if passing is not None:
            terms.append(passing[0])
            fits[STOPPED] = passing[1].note()
        candidates = proposer.search(process, terms, rng)
        index = _first_new(proposer.space, candidates, history)
        if index is None:
            return None
        params = proposer.space.decode(candidates.points.unit_NP[index])
        note = {
            "source": "model",
            "reason": _describe_reason(proposer, params),
            **proposer.expectation(process, fitted, params),
            "acquisition": float(candidates.value_N[index]),
            "fits": fits,
        }
        return Proposal(params, note)

    def _optional_terms(
        self, space: Space, model: Model, history: Sequence[Observation], rng: Generator
    ) -> tuple[list[Acquisition], dict[str, object]]:
        """Return the terms that the options add to the acquisition, and the fits behind them."""
        terms, fits = list[Acquisition](), dict[str, object]()
        cost = learned_cost(space, model, history, self.rows, rng) if self.per_second else None
        if cost is not None:
            terms.append(cost[0])
            fits[COST] = cost[1].note()
        if self.priors:
            terms.append(LogPrior.of(space, self.priors, len(history)))
        return terms, fits


@dataclass(frozen=True)
class WarmStarted:
    """The searcher with the trials of earlier sweeps."""

    searcher: GaussianProcess
    earlier: tuple[Observation, ...]
    # The last space, and the fits of the earlier sweeps, which depend on nothing else.
    fitted: list[tuple[Space, EarlierSweeps]] = field(
        default_factory=list, compare=False, repr=False
    )

    uses_results: ClassVar[bool] = True
    takes_several: ClassVar[bool] = True

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        """See `Searcher`."""
        if not space.searched:
            return self.searcher.suggest(space, history, n, rng)
        if any(seen.losses or seen.excess for seen in (*self.earlier, *history)):
            return self.searcher.suggest(space, history, n, rng, self.earlier)
        if not self.fitted or self.fitted[0][0] is not space:
            learned = self.searcher.learned(space)
            rows = self.searcher.rows
            self.fitted[:] = [(space, EarlierSweeps.of(space, self.earlier, rows, learned))]
        sweeps = self.fitted[0][1]
        return self.searcher.suggest(space, history, n, rng, self.earlier, sweeps)


def _best_of_earlier(
    history: Sequence[Observation], sweeps: EarlierSweeps | None
) -> Proposal | None:
    """Return what earlier sweeps expect most of; None: it is not their turn, or all was tried.

    The first of each four trials is theirs, of those that are not the user's.
    """
    sources = [seen.note.get("source") for seen in history]
    theirs = sources.count(EARLIER)
    own = theirs + sources.count(START) + sources.count(LEARNED)
    if sweeps is None or not sweeps.sweeps or 4 * theirs > own:
        return None
    tried = [seen.params for seen in history]
    taken = SeenConfigs(sweeps.space, (*tried, *sweeps.repeated))
    params = next((params for params in sweeps.best_first(tried) if params not in taken), None)
    if params is None:
        return None
    return Proposal(params, _note(EARLIER, "what they expect most of, beside what was tried"))


def _read_belief(name: str, given: Belief | Mapping[str, Any]) -> Belief:
    """Return a belief, given as such or as a mapping in a spec."""
    if isinstance(given, Belief):
        return given
    try:
        return Belief(**given)
    except TypeError as error:
        raise ValueError(f"priors: {name} is {given!r}; write {{value: V, width: W}}") from error


def _note(source: str, reason: str) -> dict[str, object]:
    return {"source": source, "reason": reason}


def _first_new(space: Space, candidates: Candidates, history: Sequence[Observation]) -> int | None:
    """Return the index of the best candidate that was never proposed; None: all were."""
    taken = SeenConfigs(space, (seen.params for seen in history))
    decoded = (space.decode(unit_P) for unit_P in candidates.points.unit_NP)
    return next((index for index, params in enumerate(decoded) if params not in taken), None)


def _describe_reason(proposer: Proposer, params: Params) -> str:
    if proposer.focus is None:
        return "largest expected improvement"
    name = proposer.space.searched[proposer.focus.parameter]
    return f"largest expected improvement where {name} is {params[name]!r}, which was tried least"


def _quasi_random(
    space: Space, history: Sequence[Observation], rng: Generator, note: dict[str, object]
) -> Proposal | None:
    """Return the design's next point; the seed is in the note of the history's first such point."""
    seeds = (seen.note.get("design") for seen in history)
    seed = next((seed for seed in seeds if isinstance(seed, int) and seed >= 0), None)
    if seed is None:
        seed = int(rng.integers(2**31))
    taken = SeenConfigs(space, (seen.params for seen in history))
    params = design_point(space, taken, len(history), seed, rng)
    return None if params is None else Proposal(params, {**note, "design": seed})
