"""Blots secrets out of what the ranks of an order wrote, once they have let go of it.

Ranks do so themselves where they can; those that were killed could not.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hposvc.events import Ended, Event, Failed
from hposvc.state import SweepState
from trainables.slots.assignment import log_file
from trainables.slots.redaction import redact_file


@dataclass(frozen=True)
class Redactor:
    """Watches a sweep whose trials see secrets."""

    folder: Path  # of the sweep
    secrets: Collection[str] = field(repr=False)

    def begin(self) -> None:
        """See to what an earlier driver has left; the ranks that wrote it are gone."""
        for file in (self.folder / "logs").glob("*/*.log"):
            redact_file(file, self.secrets)

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """See to the orders that have ended."""
        for event in events:
            if isinstance(event, Ended | Failed):
                for rank in range(state.spec.resources.widest):
                    file = log_file(self.folder, event.trial, event.order, rank)
                    redact_file(file, self.secrets)
