"""Early stopping within a trial: the end of one whose value has come to rest.

A trial is stopped at a report when `patience` steps have passed since its loss last fell by more
than `delta` below the lowest that counted as a fall before. That is a matter between a trial and
its own curve, so it stands beside any scheduler; what a trial's value is remains `metric.select`'s
business, whether it goes on or not.

The rule, and the names of its two numbers, are those of the early stopping of training loops (Keras
and PyTorch Lightning call delta min_delta).
"""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import ClassVar

from hposvc.schedulers.scheduler import Decision, Report


@dataclass(frozen=True)
class Plateau:
    """When a trial has come to rest."""

    patience: int  # steps without an improvement
    delta: float = 0.0  # what is no improvement yet, in the metric's unit
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience is {self.patience}; choose a whole number from 1 up")
        if not (self.delta >= 0 and isfinite(self.delta)):
            raise ValueError(f"delta is {self.delta}; choose a number from 0 up")


@dataclass
class Rests:
    """Which trials have come to rest; changes in `apply` alone."""

    plateau: Plateau
    falls: dict[str, tuple[int, float]] = field(default_factory=dict)  # the last one: step, loss

    def apply(self, report: Report) -> None:
        """Take note of a trial's first report at a step."""
        _, low = self.falls.get(report.trial, (0, inf))
        if report.loss < low - self.plateau.delta:
            self.falls[report.trial] = (report.step, report.loss)

    def restart(self, trial: str, step: int) -> None:
        """What it trains from this step on is another model."""
        self.falls[trial] = (step, inf)

    def judge(self, trial: str, step: int) -> Decision | None:
        """Why the trial that reported `step` is to be stopped; None: it goes on."""
        since, _ = self.falls[trial]
        if step - since < self.plateau.patience:
            return None
        detail = f"no gain above {self.plateau.delta:g} in the {step - since} steps since {since}"
        return Decision("stop", "plateau", detail)
