"""Proposals, computed ahead of need and off the control loop.

The searcher is a pure function of the history, so it can work in a thread while trials run. A
proposal that is ready but was made before the newest results is made anew, unless it is needed
first; only the one that is used is journaled. The generator of a proposal is derived from the
sweep's seed and the number of trials before it.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hposvc.spec import SweepSpec
from searchers.searcher import Observation, Proposal, Searcher


class Exhausted(Exception):
    """The space has no configuration that was not tried."""


def propose(
    spec: SweepSpec, searcher: Searcher, history: Sequence[Observation], count: int
) -> list[Proposal]:
    """The next proposals: the user's initial points first, then the searcher's.

    Fewer than `count` mean that the space is used up.
    """
    rng = np.random.default_rng([spec.seed, len(history)])
    given = [
        Proposal(spec.space.complete(point, rng), {"source": "initial"})
        for point in spec.initial[len(history) : len(history) + count]
    ]
    missing = count - len(given)
    if missing == 0:
        return given
    seen = [*history, *(_pending(proposal, index) for index, proposal in enumerate(given))]
    return [*given, *searcher.suggest(spec.space, seen, missing, rng)]


def _pending(proposal: Proposal, index: int) -> Observation:
    return Observation(
        id=f"ahead-{index}",
        params=proposal.params,
        note=proposal.note,
        loss=None,
        curve=(),
        state="pending",
        reason="",
        cost=None,
    )


class Proposer(Protocol):
    """Where the runner gets its proposals."""

    def look_ahead(self, history: Sequence[Observation], wanted: int, results: int) -> None:
        """Take the newest history; `results` grows when a trial's outcome came in."""

    def take(self) -> Proposal | None:
        """A proposal if one is ready, otherwise None.

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
    history: Sequence[Observation] = ()

    def look_ahead(self, history: Sequence[Observation], wanted: int, results: int) -> None:
        self.history = history

    def take(self) -> Proposal | None:
        proposals = propose(self.spec, self.searcher, self.history, 1)
        if not proposals:
            raise Exhausted
        return proposals[0]

    def close(self) -> None:
        pass


class Ahead:
    """Proposals from a thread that stays ahead of the slots."""

    def __init__(self, spec: SweepSpec, searcher: Searcher) -> None:
        self._spec, self._searcher = spec, searcher
        self._learns = getattr(searcher, "uses_results", True)
        self._changed = threading.Condition()
        self._history: list[Observation] = []
        self._wanted = 0
        self._results = 0  # of the history
        self._seen = 0  # the results that the ready proposals know of
        self._ready: list[Proposal] = []
        self._taken = 0
        self._exhausted = False
        self._error: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="proposals", daemon=True)
        self._thread.start()

    def look_ahead(self, history: Sequence[Observation], wanted: int, results: int) -> None:
        with self._changed:
            self._history, self._results = list(history), results
            self._wanted = min(wanted, 1) if self._learns else wanted
            self._exhausted = False
            self._changed.notify()

    def take(self) -> Proposal | None:
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._ready:
                self._taken += 1
                return self._ready.pop(0)
            if self._exhausted:
                raise Exhausted
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._missing() or self._stale())
                if self._closed:
                    return
                kept = self._ready if self._missing() else []
                count = self._missing() or len(self._ready)
                ahead = [_pending(proposal, index) for index, proposal in enumerate(kept)]
                seen, results, taken = [*self._history, *ahead], self._results, self._taken
            try:
                proposals = propose(self._spec, self._searcher, seen, count)
            except Exception as error:  # noqa: BLE001 - it is raised on the caller's thread
                with self._changed:
                    self._error = error
                return
            with self._changed:
                if kept or not self._ready:
                    self._ready += proposals
                    self._exhausted = len(proposals) < count
                elif self._taken == taken:
                    self._ready = proposals
                # Proposals that were taken meanwhile are not known to this refresh: drop it.
                self._seen = results

    def _missing(self) -> int:
        return 0 if self._exhausted else max(0, self._wanted - len(self._ready))

    def _stale(self) -> bool:
        return self._learns and bool(self._ready) and self._results > self._seen
