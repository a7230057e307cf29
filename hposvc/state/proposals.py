"""Configurations that people and agents propose to a sweep, in the order in which they came."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hposvc.events import Proposed, Requested
from searchers.searcher import Proposal
from searchers.space import Params

PROPOSED = "proposed"  # source in the note of a trial that somebody proposed


@dataclass
class ProposalQueue:
    """The proposals that wait for their turn, and those that were begun."""

    waiting: list[Requested] = field(default_factory=list)
    begun: list[Params] = field(default_factory=list)

    def begin(self, event: Proposed) -> None:
        """Take a new trial's configuration off the queue, whoever chose it."""
        self.waiting = [asked for asked in self.waiting if asked.changes != event.params]
        if event.note.get("source") == PROPOSED:
            self.begun.append(event.params)

    def first(self) -> Proposal:
        """Return the first proposal in the queue, for its trial."""
        asked = self.waiting[0]
        return Proposal(asked.changes, {"source": PROPOSED, "by": asked.by})

    def is_due(self, trials: int, share: float) -> bool:
        """Return whether the next trial is the first proposal's, after `trials` of them."""
        return bool(self.waiting) and self.turn(0, share) <= trials

    def turn(self, position: int, share: float) -> int:
        """Return how many trials begin before the proposal at a position of the queue.

        Proposals are at most a share of the trials begun, rounded up.
        """
        return math.floor((len(self.begun) + position) / share + 1e-9)

    def is_waiting(self, params: Mapping[str, object]) -> bool:
        """Return whether a configuration is in the queue."""
        return any(asked.changes == params for asked in self.waiting)
