"""Proposals, computed ahead of need and off the control loop.

The searcher is a pure function of the history, so it can work in a thread while trials run. A
ready proposal that is older than the newest results is replaced by a new one, unless it is needed
before; only proposals in use are journaled. Each proposal has its own random generator, derived
from the sweep's seed and the number of trials before it, so a searcher that does not learn from
results makes the same proposals whatever the timing.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from threadpoolctl import threadpool_limits

from hposvc.errors import is_built_in, plug_in_raised, shown, wrong_plug_in_answer
from hposvc.spec import SweepSpec
from hposvc.state.proposals import PROPOSED
from searchers import (
    REPEAT_OF,
    Observation,
    Params,
    Proposal,
    Searcher,
    SeenConfigs,
    SpaceError,
    call_rng,
)

CLOSE_S = 0.5  # seconds for a searcher still computing; after that its daemon thread is abandoned

# Returns a copy of the newest history; called only when needed.
History = Callable[[], Sequence[Observation]]


class SearchExhausted(Exception):
    """The space has no untried configuration left."""


def propose(
    spec: SweepSpec,
    searcher: Searcher,
    history: Sequence[Observation],
    leading: Sequence[Params] = (),
    tried: Sequence[Params] = (),
) -> Proposal | None:
    """Return the next proposal; None: the space is used up.

    The baseline and the user's initial points come first, then the best configurations of
    warm-start sweeps, then the searcher's proposals, but for what earlier sweeps have tried.

    Raises:
        PlugInFailed: the user's own searcher raised, or broke the rules.
    """
    rng = call_rng(spec.seed, len(history))
    first = spec.first_points
    if len(history) < len(first):
        point = spec.space.complete(first[len(history)], rng)
        is_baseline = spec.baseline is not None and not history
        return Proposal(point, {"source": "baseline" if is_baseline else "initial"})
    by_others = sum(seen.note.get("source") == PROPOSED for seen in history) if leading else 0
    if len(history) - by_others < len(first) + len(leading):
        proposed = {spec.space.key(seen.params) for seen in history}
        for params in leading:
            if spec.space.key(params) not in proposed:
                return Proposal(params, {"source": "warm_start"})
    return _suggest_new(spec, searcher, history, tried)


def _suggest_new(
    spec: SweepSpec, searcher: Searcher, history: Sequence[Observation], tried: Sequence[Params]
) -> Proposal | None:
    """Return the searcher's next proposal that earlier sweeps have not tried; None: there is none.

    What they have tried is shown to the searcher as trials that were killed, of which nothing is
    learned, so that it goes on behind them.
    """
    seen_configs = SeenConfigs(spec.space, tried)
    observations = list(history)
    proposal = _suggest(spec, searcher, observations, len(tried))
    for _ in tried:
        if proposal is None or proposal.params not in seen_configs or REPEAT_OF in proposal.note:
            break
        observations.append(
            Observation("tried", proposal.params, proposal.note, state="failed", reason="killed")
        )
        proposal = _suggest(spec, searcher, observations, len(tried))
    return proposal


def _suggest(
    spec: SweepSpec, searcher: Searcher, history: Sequence[Observation], tried: int
) -> Proposal | None:
    # With the numbers of the earlier sweep, random configurations would be those that it drew.
    rng = call_rng(spec.seed, len(history), tried)
    if is_built_in(searcher):
        return next(iter(searcher.suggest(spec.space, history, 1, rng)), None)
    name = f"search.method {spec.search.name}"
    try:
        answer: object = searcher.suggest(spec.space, history, 1, rng)
        proposals = list(answer) if isinstance(answer, Iterable) else answer
    except (Exception, SystemExit) as error:
        raise plug_in_raised(name, searcher, error) from error
    if problem := _problem_of(spec, history, proposals):
        raise wrong_plug_in_answer(name, searcher, problem)
    return next(iter(cast(list[Proposal], proposals)), None)


def _problem_of(spec: SweepSpec, history: Sequence[Observation], proposals: object) -> str:
    """Return how the answer of a user's own searcher breaks the rules; empty: it does not."""
    wanted = "return a list of one Proposal, or an empty one when the space is used up"
    if not isinstance(proposals, list):
        return f"returned {proposals!r}; {wanted}"
    if not proposals and not history:
        return f"returned no proposals for the first trial; {wanted}"
    if len(proposals) > 1:
        return f"returned {len(proposals)} proposals where 1 was asked for; {wanted}"
    for proposal in proposals:
        if not isinstance(proposal, Proposal) or not isinstance(proposal.params, Mapping):
            return f"returned {shown(proposal)}; {wanted}"
        try:
            spec.space.validate(proposal.params)
            json.dumps([dict(proposal.params), dict(proposal.note)])
        except SpaceError as error:
            return f"suggests what the space does not have: {error}"
        except (TypeError, ValueError) as error:
            return f"suggests {shown(proposal)}, which can't be recorded: {error}"
    return ""


class Proposer(Protocol):
    """The runner's source of proposals."""

    def look_ahead(self, history: History, wanted: int, results: int) -> None:
        """Take the newest history; `results` grows with each new result of a trial."""

    def take(self) -> Proposal | None:
        """Return a ready proposal, or None; the next history must include the proposal.

        Raises:
            Exhausted: no proposal is left.
        """

    def move(self, spec: SweepSpec) -> None:
        """Go on in a space with more values; `look_ahead` follows."""

    def close(self) -> None:
        """Stop proposing."""


@dataclass
class SyncProposer:
    """Makes proposals on demand on the caller's thread, for simulations, whose clock waits."""

    spec: SweepSpec
    searcher: Searcher
    leading: Sequence[Params] = ()  # best of warm-start sweeps, tried first
    tried: Sequence[Params] = ()  # by warm-start sweeps; not proposed again
    history: History = tuple

    def look_ahead(self, history: History, wanted: int, results: int) -> None:
        self.history = history

    def take(self) -> Proposal | None:
        proposal = propose(self.spec, self.searcher, self.history(), self.leading, self.tried)
        if proposal is None:
            raise SearchExhausted
        return proposal

    def move(self, spec: SweepSpec) -> None:
        self.spec = spec

    def close(self) -> None:
        pass


class BackgroundProposer:
    """Makes proposals on a thread, ahead of the slots' need."""

    def __init__(
        self,
        spec: SweepSpec,
        searcher: Searcher,
        leading: Sequence[Params] = (),
        tried: Sequence[Params] = (),
    ) -> None:
        self._spec, self._searcher, self._leading, self._tried = spec, searcher, leading, tried
        self._learns = getattr(searcher, "uses_results", True)
        self._changed = threading.Condition()
        self._history: list[Observation] = []  # including proposals taken since
        self._wanted = 0
        self._results = 0  # number of results in the history
        self._known_results = 0  # number of results that the ready proposals know
        self._ready: list[Proposal] = []
        self._exhausted = False
        self._error: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="proposals", daemon=True)
        self._thread.start()

    def look_ahead(self, history: History, wanted: int, results: int) -> None:
        with self._changed:
            if self._learns or not self._history:
                self._history = list(history())
            self._results = results
            self._wanted = min(wanted, 1) if self._learns else wanted
            self._changed.notify()

    def take(self) -> Proposal | None:
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._ready:
                proposal = self._ready.pop(0)
                # The thread must not propose it again before the next history comes.
                self._history.append(_pending(proposal))
                self._changed.notify()
                return proposal
            if self._exhausted:
                raise SearchExhausted
            return None

    def move(self, spec: SweepSpec) -> None:
        with self._changed:
            self._spec, self._exhausted = spec, False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            # Spinning BLAS threads would take cores from the ranks on this machine.
            with threadpool_limits(limits=1, user_api="blas"):
                self._propose_until_closed()
        except Exception as error:  # noqa: BLE001 - raised on the caller's thread
            with self._changed:
                self._error = error

    def _propose_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._needs_more() or self._is_stale()
                )
                if self._closed:
                    return
                refresh, results = not self._needs_more(), self._results
                ready = [] if refresh else self._ready
                history = [*self._history, *map(_pending, ready)]
                spec = self._spec
            proposal = propose(spec, self._searcher, history, self._leading, self._tried)
            with self._changed:
                if spec is self._spec:  # else it does not know all values
                    self._store_proposal(proposal, refresh)
                    self._known_results = results

    def _store_proposal(self, proposal: Proposal | None, anew: bool) -> None:
        if proposal is None:
            self._exhausted = True
        elif not anew:
            self._ready.append(proposal)
        elif self._ready:  # otherwise it was taken meanwhile, and this proposal may duplicate it
            self._ready = [proposal]

    def _needs_more(self) -> bool:
        return not self._exhausted and len(self._ready) < self._wanted

    def _is_stale(self) -> bool:
        needed = 0 < len(self._ready) <= self._wanted
        return self._learns and needed and self._results > self._known_results


def _pending(proposal: Proposal) -> Observation:
    return Observation("ahead", proposal.params, proposal.note)
