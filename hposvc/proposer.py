"""Proposals, computed ahead of need and off the control loop.

The searcher is a pure function of the history, so it can work in a thread while trials run. A
proposal that is ready but was made before the newest results is made anew, unless it is needed
first; only the one that is used is journaled. Each proposal has a generator of its own, derived
from the sweep's seed and the number of trials before it, so a searcher that does not learn from
results proposes the same whatever the timing.
"""

import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from threadpoolctl import threadpool_limits

from hposvc.spec import SweepSpec
from searchers.searcher import Observation, Proposal, Searcher, call_rng
from searchers.space import Params

CLOSE_S = 0.5  # for a searcher that still thinks; its thread is a daemon beyond that

History = Callable[[], Sequence[Observation]]  # a copy of the newest; made only where it is needed


class SearcherFailed(Exception):
    """A search method of the user's own raised; the message says what and where."""


class Exhausted(Exception):
    """The space has no configuration that was not tried."""


def propose(
    spec: SweepSpec,
    searcher: Searcher,
    history: Sequence[Observation],
    leading: Sequence[Params] = (),
) -> Proposal | None:
    """The next proposal: the user's initial points, what led in other sweeps, the searcher's.

    None: the space is used up.
    """
    rng = call_rng(spec.seed, len(history))
    if len(history) < len(spec.initial):
        point = spec.space.complete(spec.initial[len(history)], rng)
        return Proposal(point, {"source": "initial"})
    if len(history) < len(spec.initial) + len(leading):
        tried = {spec.space.key(seen.params) for seen in history}
        for params in leading:
            if spec.space.key(params) not in tried:
                return Proposal(params, {"source": "warm_start"})
    try:
        return next(iter(searcher.suggest(spec.space, history, 1, rng)), None)
    except Exception as error:
        if type(searcher).__module__.startswith("searchers."):
            raise  # one of ours: that is a bug
        raise SearcherFailed(_blamed(spec, error)) from error


def _blamed(spec: SweepSpec, error: Exception) -> str:
    """What a user's searcher raised, and in which line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}"
    return (
        f"search.method {spec.search.name} raised {what} ({last.filename}:{last.lineno}); "
        "nothing is lost: mend it, and `hposvc resume` goes on"
    )


class Proposer(Protocol):
    """Where the runner gets its proposals."""

    def look_ahead(self, history: History, wanted: int, results: int) -> None:
        """Take the newest history; `results` grows when a trial's outcome came in."""

    def take(self) -> Proposal | None:
        """A proposal if one is ready, otherwise None; the next history must hold it.

        Raises:
            Exhausted: there is none left.
        """

    def close(self) -> None:
        """Stop proposing."""


@dataclass
class Inline:
    """Proposals on demand, on the caller's thread: for simulations, where time stands still."""

    spec: SweepSpec
    searcher: Searcher
    leading: Sequence[Params] = ()  # of other sweeps, tried first
    history: History = tuple

    def look_ahead(self, history: History, wanted: int, results: int) -> None:
        self.history = history

    def take(self) -> Proposal | None:
        proposal = propose(self.spec, self.searcher, self.history(), self.leading)
        if proposal is None:
            raise Exhausted
        return proposal

    def close(self) -> None:
        pass


class Ahead:
    """Proposals from a thread that stays ahead of the slots."""

    def __init__(self, spec: SweepSpec, searcher: Searcher, leading: Sequence[Params] = ()) -> None:
        self._spec, self._searcher, self._leading = spec, searcher, leading
        self._learns = getattr(searcher, "uses_results", True)
        self._changed = threading.Condition()
        self._history: list[Observation] = []  # with what was taken since
        self._wanted = 0
        self._results = 0  # of the history
        self._seen = 0  # the results that the ready proposals know of
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
                return proposal
            if self._exhausted:
                raise Exhausted
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            # BLAS threads that wait for each other would take the cores from the ranks beside them.
            with threadpool_limits(limits=1, user_api="blas"):
                self._work()
        except Exception as error:  # noqa: BLE001 - it is raised on the caller's thread
            with self._changed:
                self._error = error

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._lacks() or self._is_stale())
                if self._closed:
                    return
                anew, results = not self._lacks(), self._results
                kept = [] if anew else self._ready
                history = [*self._history, *map(_pending, kept)]
            proposal = propose(self._spec, self._searcher, history, self._leading)
            with self._changed:
                self._keep(proposal, anew)
                self._seen = results

    def _keep(self, proposal: Proposal | None, anew: bool) -> None:
        if proposal is None:
            self._exhausted = True
        elif not anew:
            self._ready.append(proposal)
        elif self._ready:  # otherwise it was taken meanwhile, and this one may be its twin
            self._ready = [proposal]

    def _lacks(self) -> bool:
        return not self._exhausted and len(self._ready) < self._wanted

    def _is_stale(self) -> bool:
        needed = 0 < len(self._ready) <= self._wanted
        return self._learns and needed and self._results > self._seen


def _pending(proposal: Proposal) -> Observation:
    return Observation("ahead", proposal.params, proposal.note)
