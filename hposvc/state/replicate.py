"""The state of a replicate: a training of a finalist from scratch, with other random numbers."""

import math
from dataclasses import dataclass, field
from typing import Literal

from hposvc.events import Decided, Reported
from hposvc.spec import Metric
from trainables.order import Order
from trainables.storage.checkpoint import Saved

RepeatPhase = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]
GIVEN_UP = "stopped by the user"  # a repeat's reason; `user` is a failure of the user's code


@dataclass
class Replicate:
    """A replicate of a finalist; its fields mean what a trial's fields do."""

    trial: str
    number: int  # among the trial's replicates, from 1
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
    returned: bool = False  # its trainable returned, which is the end of a trial without fidelity
    given_up: bool = False  # somebody ended its trial: no more orders
    told: str = ""  # why its order was told to end; empty: it was not
    told_at: float = 0.0
    killed: bool = False
    backing_off: float | None = None  # the earliest time of the next try; None: at once

    def held_s(self, time: float) -> float:
        """Return the rank-seconds of its present order up to a time."""
        assert self.order is not None
        return max(0.0, time - self.ordered_at) * self.order.workers

    def ran_s(self, time: float) -> float:
        """Return the seconds that it has run up to a time."""
        return self.seconds + (0.0 if self.order is None else max(0.0, time - self.ordered_at))

    @property
    def step(self) -> int:
        """The last step reported; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0

    def came_to(self, last: int | None) -> bool:
        """Return whether it reached this step; None: whether its trainable returned."""
        return self.returned if last is None else self.step >= last

    @property
    def value(self) -> float | None:
        """The selected value (last, best, mean_K); None unless it is completed."""
        return self.metric.value(self.curve) if self.state == "COMPLETED" else None

    @property
    def resume_point(self) -> Saved | None:
        """The checkpoint from which it continues; None: it starts from scratch."""
        usable = [saved for saved in self.checkpoints if saved.step <= self.step]
        return max(usable, key=lambda saved: saved.position, default=None)

    def report(self, event: Reported) -> None:
        """Apply a report; the first report of each step stands."""
        if event.step > self.step:
            value = event.metrics.get(self.metric.name, math.nan)
            self.curve.append((event.step, value))
            self.diverged = self.diverged or not math.isfinite(value)

    def tell(self, event: Decided) -> None:
        """Apply a decision that ends its order."""
        self.told_at = self.told_at if self.told else event.time
        self.told = self.told or event.reason
        self.message = event.detail or self.message
        self.killed = self.killed or event.verdict == "kill"

    def give_up(self) -> None:
        """End it for good, because somebody ended its trial."""
        self.given_up = True
        self.state, self.reason, self.backing_off = "FAILED", GIVEN_UP, None

    @property
    def failed(self) -> bool:
        """Whether it failed for good and can be tried again by request."""
        return self.state == "FAILED" and not self.given_up
