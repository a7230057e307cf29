"""Configurations that people and agents propose to a sweep, in the order in which they came."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from hposvc.events import Proposed, Requested
from searchers import Params, Proposal, Space

PROPOSED = "proposed"  # source in the note of a trial that somebody proposed


@dataclass
class ProposalQueue:
    """The proposals that wait for their turn, and those that were begun, by `Space.key`."""

    space: Space
    waiting: dict[Hashable, Requested] = field(default_factory=dict)  # first proposed first
    begun: dict[Hashable, Params] = field(default_factory=dict)

    def move(self, space: Space) -> None:
        """Go on in a space with more values."""
        self.space = space
        self.waiting = {space.key(asked.changes): asked for asked in self.waiting.values()}
        self.begun = {space.key(params): params for params in self.begun.values()}

    def add(self, asked: Requested) -> None:
        """Put a proposal at the end of the queue."""
        self.waiting[self.space.key(asked.changes)] = asked

    def begin(self, event: Proposed) -> None:
        """Take a new trial's configuration off the queue, whoever chose it."""
        key = self.space.key(event.params)
        self.waiting.pop(key, None)
        if event.note.get("source") == PROPOSED:
            self.begun[key] = event.params

    def first(self) -> Proposal:
        """Return the first proposal in the queue, for its trial."""
        asked = next(iter(self.waiting.values()))
        return Proposal(asked.changes, {"source": PROPOSED, "by": asked.by})

    def begins_after(self, position: int, share: float) -> int:
        """Return how many trials begin before the proposal at a position of the queue.

        Proposals are at most a share of the trials begun, rounded up.
        """
        return math.floor((len(self.begun) + position) / share + 1e-9)
