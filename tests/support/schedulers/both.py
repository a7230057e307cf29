"""A scheduler and a brute-force reference, asked side by side."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Both:
    """A scheduler whose every answer is compared with the reference's."""

    real: Any
    reference: Any
    copies = False

    def apply(self, fact):
        self.real.apply(fact)
        self.reference.apply(fact)

    def next(self):
        move = self.real.next()
        assert move == self.reference.next()
        return move

    def judge(self, report):
        decision = self.real.judge(report)
        assert decision.verdict == self.reference.judge(report)
        return decision

    def trials_to_stop(self):
        return self.real.trials_to_stop()

    def max_concurrency(self):
        return self.real.max_concurrency()
