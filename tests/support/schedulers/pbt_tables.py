"""A reference PBT with a table of each member's state, fast enough for a thousand members.

pbt_reference.py looks at all facts for every answer: that is beyond doubt, but takes minutes for
one question about a thousand members. Small populations compare the tables with it.
"""

import math
import zlib
from dataclasses import dataclass, field

import numpy as np
from both import Both
from pbt_reference import both

from hposvc.schedulers.pbt import DONORS, Exploit, Pbt
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Report,
    SearchDone,
    Wait,
)


@dataclass
class Tables:
    """PBT as its docstring describes it, with unsorted tables that are sorted for every rank."""

    policy: Pbt
    plan: Plan
    phases: dict = field(default_factory=dict)  # running, paused or left, of each started member
    clocks: dict = field(default_factory=dict)  # each member's last ranking step, once it has one
    losses: dict = field(default_factory=dict)  # of the ranked members
    copying: dict = field(default_factory=dict)  # the donor chosen at a member's last ranking
    closed: bool = False

    def apply(self, fact):
        match fact:
            case Closed():
                self.closed = True
            case Ordered(trial=trial):
                self.phases[trial] = "running"
                self.copying.pop(trial, None)
            case Paused(trial=trial):
                self.phases[trial] = "paused"
            case Left(trial=trial):
                self.phases[trial] = "left"
                if self.clocks.get(trial, 0) < self.plan.last:
                    self.losses.pop(trial, None)
            case Report(loss=math.inf):
                self.losses.pop(fact.trial, None)
            case Report():
                self.rank(fact)

    def rank(self, report):
        trial, step = report.trial, report.step
        if step != self.plan.last and step not in self.steps:
            return
        self.clocks[trial], self.losses[trial] = step, report.loss
        self.copying.pop(trial, None)
        share = self.share()
        better = sum(loss < report.loss for loss in self.losses.values())
        if step != self.plan.last and share and better >= len(self.losses) - share:
            self.copying[trial] = self.draw(trial, share)

    @property
    def steps(self):
        every, first = self.policy.interval, max(self.plan.first, self.policy.burn_in)
        return [s for s in range(every, self.plan.last, every) if s >= first]

    def next(self):
        if self.unborn():
            return NewTrial(self.plan.last, tuple(self.steps))
        paused = [trial for trial, phase in self.phases.items() if phase == "paused"]
        if not paused:
            return Wait() if "running" in self.phases.values() else SearchDone()
        turn, trial = min(((self.clocks.get(t, 0), t not in self.copying), t) for t in paused)
        donor = self.present_donor(trial)
        change = None if donor is None else Exploit(donor, self.policy)
        ahead = tuple(step for step in self.steps if step > turn[0])
        return Advance(trial, self.plan.last, ahead, change)

    def judge(self, report):
        waits = any(
            phase == "paused" and self.clocks.get(trial, 0) <= report.step
            for trial, phase in self.phases.items()
        )
        return "pause" if report.trial in self.copying or self.unborn() or waits else "continue"

    def max_concurrency(self):
        return sum(phase != "left" for phase in self.phases.values())

    def unborn(self):
        return not self.closed and len(self.phases) < self.plan.trials

    def share(self):
        """Return how many members are strong; equally many are weak."""
        members = len(self.phases) if self.closed else self.plan.trials
        gone = [t for t, phase in self.phases.items() if phase == "left" and t not in self.losses]
        needed = min(math.ceil(1 / self.policy.quantile - 1e-9), members - len(gone))
        if len(self.losses) < max(2, needed):
            return 0
        return max(1, math.floor(self.policy.quantile * len(self.losses) + 1e-9))

    def draw(self, trial, share):
        """Return a random one of the strong members."""
        strong = sorted((loss, name) for name, loss in self.losses.items())[:share]
        key = [self.plan.seed, DONORS, zlib.crc32(trial.encode()), self.clocks[trial]]
        return strong[int(np.random.default_rng(key).integers(share))][1]

    def present_donor(self, trial):
        """Return a member's present donor: a lost donor is replaced by a better member, or None."""
        donor = self.copying.get(trial)
        if donor is None or donor in self.losses:
            return donor
        share = self.share()
        if not share:
            return None
        other = self.draw(trial, share)
        return other if self.losses[other] < self.losses[trial] else None


class Population(Both):
    """The real scheduler and the rescan, compared with the tables at every question."""

    copies = True

    def max_concurrency(self):
        width = self.real.max_concurrency()
        assert width == self.reference.max_concurrency()
        return width


def beside_both(policy, plan):
    """Return the real scheduler beside the rescan and the tables, each compared with the others."""
    return Population(both(policy, plan), Tables(policy, plan))
