"""Every trial runs to its end, in the order proposed."""

from dataclasses import dataclass
from typing import ClassVar

from hposvc.schedulers.continuing import Continuing
from hposvc.schedulers.scheduler import Advance, Decision, NewTrial, Over, Plan, Report, Wait


@dataclass
class _Queue(Continuing):
    def next(self) -> NewTrial | Advance | Wait | Over:
        return self.carry_on() or (self.rest() if self.closed else NewTrial(self.last))

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "fifo")


@dataclass(frozen=True)
class Fifo:
    """No early stopping."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan: Plan) -> _Queue:
        return _Queue(plan.last)
