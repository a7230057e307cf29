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
from hposvc.state.trial_table import TrialTable

PROGRESS = (Attached, Checkpointed, Ended, Reported, Requested)  # failures are none


@dataclass
class Alerts:
    """The moments told so far, and what has to change until they come again."""

    progressed: float = 0.0  # time of the last event by which the sweep came forward
    best_loss: float = math.inf  # of the best trial when a new one was last told
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
            "plateau": trials.gains.low,
            "stalled": self.progressed,
            "budget": trials.spec.budget,
        }
        return situations[what]

    def _tell(self, event: Alerted, trials: TrialTable) -> None:
        self.last[event.what] = event.time
        match event.what:
            case "new_best":
                self.front |= set(trials.best())
                self.best_loss = min(
                    (trials[name].loss for name in trials.best()), default=math.inf
                )
            case "trial_failed":
                self.failed = trials.counts.get("FAILED", 0)
            case "plateau" | "stalled" | "budget":
                situation = self.situation(event.what, trials)
                self.thresholds.add((event.what, event.at, situation))
