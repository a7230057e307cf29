"""Early stopping within a trial: stop a trial whose loss no longer improves.

A trial is stopped at a report when `patience` steps have passed since its last improvement: a loss
more than `delta` below the loss at the improvement before. The rule compares a trial with its own
curve only, so it works beside any scheduler. Which of its reports is a trial's value remains the
business of `metric.select`, stopped or not.

The rule and the names of its two numbers are those of early stopping in training loops (Keras and
PyTorch Lightning call delta min_delta).
"""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Annotated, ClassVar

from hposvc.schedulers.scheduler import Decision, Report
from searchers import STEPS, AtMost


@dataclass(frozen=True)
class Plateau:
    """The options that say when a trial has stopped improving."""

    patience: Annotated[int, AtMost(STEPS)]  # steps without an improvement
    delta: float = 0.0  # the largest fall that is no improvement yet, in the metric's unit
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ValueError(f"patience is {self.patience}; choose a whole number from 1 up")
        if not (self.delta >= 0 and isfinite(self.delta)):
            raise ValueError(f"delta is {self.delta}; choose a number from 0 up")


@dataclass
class EarlyStopping:
    """The last improvement of each trial; changes in `apply` and `restart` alone."""

    plateau: Plateau
    falls: dict[str, tuple[int, float]] = field(default_factory=dict)  # last step and loss of each

    def apply(self, report: Report) -> None:
        """Take note of a trial's first report at a step."""
        _, low = self.falls.get(report.trial, (0, inf))
        if report.loss < low - self.plateau.delta:
            self.falls[report.trial] = (report.step, report.loss)

    def restart(self, trial: str, step: int) -> None:
        """Forget the trial's improvements: from this step on it trains another model."""
        self.falls[trial] = (step, inf)

    def judge(self, trial: str, step: int) -> Decision | None:
        """Return the decision to stop the trial that reported `step`; None: it goes on."""
        since, _ = self.falls[trial]
        if step - since < self.plateau.patience:
            return None
        detail = f"no gain above {self.plateau.delta:g} in the {step - since} steps since {since}"
        return Decision("stop", "plateau", detail)
