"""A scheduler and a brute-force reference, asked side by side."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Both:
    """A scheduler that is held against the reference at every question."""

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

    def cut(self):
        return self.real.cut()

    def width(self):
        return self.real.width()
