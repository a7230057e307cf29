"""One training of a finalist: what is known of it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from hposvc.events import Decided, Order, Reported
from hposvc.spec import Metric
from trainables.checkpoints.checkpoint import Saved

RepeatPhase = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]
GIVEN_UP = "stopped by the user"  # a repeat's reason; `user` is a failure of the user's code


@dataclass
class Repeat:
    """One training of a finalist from nothing; its fields mean what a trial's do."""

    trial: str
    number: int  # of the trial's repeats, from 1
    metric: Metric
    state: RepeatPhase = "PENDING"
    reason: str = ""  # why it failed
    order: Order | None = None  # the order that a slot has
    ordered_at: float = 0.0
    seconds: float = 0.0  # of orders that are over
    curve: list[tuple[int, float]] = field(default_factory=list)  # (step, value), as reported
    checkpoints: list[Saved] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)  # by cause
    message: str = ""
    diverged: bool = False
    given_up: bool = False  # somebody ended its trial: it gets no order any more
    told: str = ""  # why its order is to end; empty: it is not
    told_at: float = 0.0
    killed: bool = False
    cooling: float | None = None  # the time before which it is not tried again; None: any

    def held_s(self, time: float) -> float:
        """Seconds that its present order held ranks up to then."""
        assert self.order is not None
        return max(0.0, time - self.ordered_at) * self.order.workers

    def ran_s(self, time: float) -> float:
        """Seconds that it has run up to then."""
        return self.seconds + (0.0 if self.order is None else max(0.0, time - self.ordered_at))

    @property
    def step(self) -> int:
        """The last step reported; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def value(self) -> float | None:
        """The selected value (last, best, mean_K); None unless it came to its end."""
        return self.metric.value(self.curve) if self.state == "COMPLETED" else None

    @property
    def newest(self) -> Saved | None:
        """What it goes on from; None: nothing."""
        usable = [saved for saved in self.checkpoints if saved.step <= self.step]
        return max(usable, key=lambda saved: saved.place, default=None)

    def report(self, event: Reported) -> None:
        """Take a report in; the first of each step stands."""
        if event.step > self.step:
            value = event.metrics.get(self.metric.name, math.nan)
            self.curve.append((event.step, value))
            self.diverged = self.diverged or not math.isfinite(value)

    def tell(self, event: Decided) -> None:
        """Its order is told to end."""
        self.told_at = self.told_at if self.told else event.time
        self.told = self.told or event.reason
        self.message = event.detail or self.message
        self.killed = self.killed or event.verdict == "kill"

    def give_up(self) -> None:
        """It gets no order any more, since somebody ended its trial."""
        self.given_up = True
        self.state, self.reason, self.cooling = "FAILED", GIVEN_UP, None

    @property
    def failed(self) -> bool:
        """Whether it failed for good, and may be tried again if people wish."""
        return self.state == "FAILED" and not self.given_up
