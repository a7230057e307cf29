"""Fold the notifications that were sent, so that none is sent twice."""

import math
from dataclasses import dataclass, field

from hposvc.events import (
    Alerted,
    Attached,
    Checkpointed,
    Ended,
    Event,
    MomentKind,
    Reported,
    Requested,
)
from hposvc.state.ranking import improvement
from hposvc.state.trial import TrialState
from hposvc.state.trial_table import TrialTable

PROGRESS = (Attached, Checkpointed, Ended, Reported, Requested)  # failures are none


@dataclass
class Alerts:
    """The moments told so far, and what has to change until they come again."""

    progressed: float = 0.0  # time of the last event by which the sweep came forward
    best: str | None = None  # the best trial when a new one was last told
    best_loss: float = math.inf  # its loss then
    front: set[str] = field(default_factory=set)  # trials told as the best, or as on the front
    failed: int = 0  # failed trials that were told
    last: dict[MomentKind, float] = field(default_factory=dict)  # time of the last alert
    # Thresholds told, each with its situation: what changes when it can be reached anew.
    thresholds: set[tuple[MomentKind, float, object]] = field(default_factory=set)

    def apply(self, event: Event, trials: TrialTable) -> None:
        """Apply an event, after the table of trials has."""
        if isinstance(event, PROGRESS):
            self.progressed = event.time
        if isinstance(event, Requested):  # a retry: fewer trials have failed
            self.failed = min(self.failed, trials.counts.get("FAILED", 0))
        if isinstance(event, Alerted):
            self._tell(event, trials)

    def situation(self, what: MomentKind, trials: TrialTable) -> object:
        """Return what changes when the thresholds of a moment can be reached anew."""
        situations = {
            "plateau": trials.plateau.low,
            "stalled": self.progressed,
            "budget": trials.spec.budget,
        }
        return situations[what]

    def is_better(self, best: TrialState, trials: TrialTable) -> bool:
        """Return whether the best trial is another or a better one than when it was last told."""
        if self.best is not None and trials[self.best].excluded:
            return True
        if self.best is None or self.best == best.id:
            return best.loss < self.best_loss
        return improvement(trials[self.best], best) > 0

    def _tell(self, event: Alerted, trials: TrialTable) -> None:
        self.last[event.what] = event.time
        match event.what:
            case "new_best":
                self.front |= set(trials.best())
                if not trials.spec.several:
                    self.best = next(iter(trials.best()), None)
                    self.best_loss = math.inf if self.best is None else trials[self.best].loss
            case "trial_failed":
                self.failed = trials.counts.get("FAILED", 0)
            case "plateau" | "stalled" | "budget":
                situation = self.situation(event.what, trials)
                self.thresholds.add((event.what, event.at, situation))
