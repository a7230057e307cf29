"""Links that carry a rank's reports to their receiver: a coordinator, a debugger, or a test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

from trainables.dataset import DataSet
from trainables.limits import (
    Energy,
    FiniteNumber,
    Flag,
    Limits,
    LongText,
    Name,
    Number,
    OrderId,
    Step,
    Text,
)
from trainables.metrics import MOST_METRICS
from trainables.storage.checkpoint import Saved


@dataclass(frozen=True)
class AboutOrder:
    """A message about an order, which may be over by now.

    Agents send it to a server as JSON, in which `type` names its class.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    order: OrderId


@dataclass(frozen=True)
class Report(AboutOrder):
    """The content of one call of `Worker.report`; metrics and checkpoint are rank 0's."""

    step: Step
    metrics: Annotated[Mapping[Text, Number], Limits(max_length=MOST_METRICS)]
    checkpoint: Saved | None = None
    # What values were that are no numbers, by the metric's name; each name once in an order.
    left_out: Annotated[Mapping[Text, Text], Limits(max_length=MOST_METRICS)] = field(
        default_factory=dict
    )
    judged: Flag = True  # it has all metrics of the sweep: at a milestone a decision follows
    energy_kwh: Energy | None = None  # of the order so far, on all ranks; None: not measured
    type: Literal["report"] = "report"


@dataclass(frozen=True)
class CheckpointSaved(AboutOrder):
    """A checkpoint of rank 0 written apart from a report."""

    saved: Saved
    type: Literal["saved"] = "saved"


@dataclass(frozen=True)
class DataDeclared(AboutOrder):
    """The data sets that the order's trial uses."""

    data: Annotated[tuple[DataSet, ...], Limits(max_length=100)]
    type: Literal["data"] = "data"


@dataclass(frozen=True)
class Suggestion(AboutOrder):
    """A parameter that the sweep lacks, and whose value was decided within the trial."""

    name: Name
    value: FiniteNumber | int | LongText | bool | None
    domain: Mapping[str, Any]  # as a spec declares it
    type: Literal["suggestion"] = "suggestion"


Unanswered = CheckpointSaved | DataDeclared | Suggestion


class Link(Protocol):
    """A channel from a rank to the receiver of its reports."""

    def exchange(self, report: Report) -> bool:
        """Deliver a report and wait for a decision if one is due; return False to stop now."""
        ...

    def tell(self, message: Unanswered) -> None:
        """Deliver a message that gets no answer, from any thread."""
        ...

    def beat(self) -> None:
        """Signal that the rank is making progress."""
        ...

    def once(self, name: str, work: Callable[[], str]) -> str:
        """Return the result of `work` from the first rank of the order that asks for this name.

        Ranks that ask later wait for the result, and do the work themselves if it failed.
        """
        ...


@dataclass
class LocalLink:
    """A link that collects reports in this process, and stops the order at step `stop_at`."""

    stop_at: int | None = None
    reports: list[Report] = field(default_factory=list)
    kept: list[Saved] = field(default_factory=list)  # checkpoints without a report

    def exchange(self, report: Report) -> bool:
        self.reports.append(report)
        return self.stop_at is None or report.step < self.stop_at

    def tell(self, message: Unanswered) -> None:
        if isinstance(message, CheckpointSaved):
            self.kept.append(message.saved)

    def beat(self) -> None:
        """Do nothing: no one monitors this rank."""

    def once(self, name: str, work: Callable[[], str]) -> str:
        return work()
