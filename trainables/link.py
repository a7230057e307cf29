"""How what a rank has to say travels to whoever decides: to a leader, a debugger, a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet


class Report(NamedTuple):
    """What one call of `Worker.report` sent."""

    step: int
    metrics: dict[str, float]
    checkpoint: Saved | None


class Link(Protocol):
    """How a report travels from a rank to whoever decides."""

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        """Deliver a report, waiting for a decision where one is due. False: stop now."""
        ...

    def keep(self, saved: Saved) -> None:
        """Deliver a checkpoint without a report; nobody answers. From any thread."""
        ...

    def uses(self, data: tuple[DataSet, ...]) -> None:
        """Deliver which samples the trial has; nobody answers."""
        ...

    def beat(self) -> None:
        """The rank is at work."""
        ...


@dataclass
class LocalLink:
    """Collects reports in this process; says stop at `stop_at`, if that is given."""

    stop_at: int | None = None
    reports: list[Report] = field(default_factory=list)
    kept: list[Saved] = field(default_factory=list)  # checkpoints without a report
    data: tuple[DataSet, ...] = ()

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        self.reports.append(Report(step, dict(metrics), checkpoint))
        return self.stop_at is None or step < self.stop_at

    def keep(self, saved: Saved) -> None:
        self.kept.append(saved)

    def uses(self, data: tuple[DataSet, ...]) -> None:
        self.data = data

    def beat(self) -> None:
        """Nobody watches over it."""
