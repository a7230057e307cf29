"""First in, first out: every trial runs to its end, in the order proposed."""

from dataclasses import dataclass
from typing import ClassVar

from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.scheduler import Decision, Plan, Report


@dataclass
class _Queue(Resumable):
    def judge(self, report: Report) -> Decision:
        return Decision("continue", "fifo")


@dataclass(frozen=True)
class Fifo:
    """Train every trial to its end, in the order proposed."""

    any_length: ClassVar[bool] = True
    ends_steadily: ClassVar[bool] = True
    keeps_all: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan: Plan) -> _Queue:
        return _Queue(plan.until)
