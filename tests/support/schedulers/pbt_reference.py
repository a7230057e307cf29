"""A reference PBT that rescans all facts for every answer, and slots that drive a scheduler."""

import math
import zlib
from dataclasses import dataclass, field

import numpy as np
from both import Both

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
class Rescan:
    """PBT as its docstring describes it: every answer looks at all facts so far."""

    policy: Pbt
    plan: Plan
    facts: list = field(default_factory=list)

    def apply(self, fact):
        self.facts.append(fact)

    @property
    def steps(self):
        every, first = self.policy.interval, max(self.plan.first, self.policy.burn_in)
        return [s for s in range(1, self.plan.last) if s % every == 0 and s >= first]

    def judge(self, report):
        if self.donor(report.trial, self.facts) is not None:
            return "pause"
        clocks = [self.clock(t) for t in self.members() if self.phase(t) == "paused"]
        waits = any(clock <= report.step for clock in clocks)
        return "pause" if self.unborn() or waits else "continue"

    def next(self):
        if self.unborn():
            return NewTrial(self.plan.last, tuple(self.steps))
        paused = [
            (self.clock(trial), self.donor(trial, self.facts) is None, trial)
            for trial in self.members()
            if self.phase(trial) == "paused"
        ]
        if not paused:
            busy = any(self.phase(t) == "running" for t in self.members())
            return Wait() if busy else SearchDone()
        clock, _, trial = min(paused)
        donor = self.present_donor(trial)
        change = None if donor is None else Exploit(donor, self.policy)
        ahead = tuple(step for step in self.steps if step > clock)
        return Advance(trial, self.plan.last, ahead, change)

    def members(self):
        return list(dict.fromkeys(f.trial for f in self.facts if isinstance(f, Ordered | Left)))

    def unborn(self):
        closed = any(isinstance(fact, Closed) for fact in self.facts)
        return not closed and len(self.members()) < self.plan.trials

    def phase(self, trial):
        phases = {Ordered: "running", Paused: "paused", Left: "left"}
        history = [phases[type(f)] for f in self.facts if type(f) in phases and f.trial == trial]
        return history[-1]

    def rated(self, trial, facts):
        """Return a member's reports at the steps where members are ranked."""
        steps = [*self.steps, self.plan.last]
        return [f for f in facts if type(f) is Report and f.trial == trial and f.step in steps]

    def clock(self, trial):
        finite = [f.step for f in self.rated(trial, self.facts) if f.loss < math.inf]
        return max(finite, default=0)

    def ranking(self, facts):
        """Return the last loss of each ranked member, best first."""
        table = []
        for trial in {f.trial for f in facts if isinstance(f, Report)}:
            rated = self.rated(trial, facts)
            diverged = any(
                isinstance(f, Report) and f.trial == trial and f.loss == math.inf for f in facts
            )
            over = any(isinstance(f, Left) and f.trial == trial for f in facts)
            if rated and not diverged and not (over and rated[-1].step < self.plan.last):
                table.append((rated[-1].loss, trial))
        return sorted(table)

    def strong(self, facts):
        """Return the members that may be copied; equally many are weak."""
        table = self.ranking(facts)
        closed = any(isinstance(fact, Closed) for fact in facts)
        seen = {f.trial for f in facts if isinstance(f, Ordered | Left)}
        members = len(seen) if closed else self.plan.trials
        ranked = {trial for _, trial in table}
        left = {f.trial for f in facts if isinstance(f, Left)} - ranked
        needed = min(math.ceil(1 / self.policy.quantile - 1e-9), members - len(left))
        if len(table) < max(2, needed):
            return []
        share = max(1, math.floor(self.policy.quantile * len(table) + 1e-9))
        return table[:share]

    def donor(self, trial, facts):
        """Return the donor chosen at a member's last report; None: none, or ordered again since."""
        rated = self.rated(trial, facts)
        if not rated or rated[-1].step == self.plan.last or rated[-1].loss == math.inf:
            return None
        at = facts.index(rated[-1]) + 1
        if any(isinstance(f, Ordered) and f.trial == trial for f in facts[at:]):
            return None
        then = facts[:at]
        strong = self.strong(then)
        better = [loss for loss, _ in self.ranking(then) if loss < rated[-1].loss]
        if not strong or len(better) < len(self.ranking(then)) - len(strong):
            return None
        return self.draw(strong, rated[-1])

    def draw(self, strong, report):
        key = [self.plan.seed, DONORS, zlib.crc32(report.trial.encode()), report.step]
        return strong[int(np.random.default_rng(key).integers(len(strong)))][1]

    def present_donor(self, trial):
        donor = self.donor(trial, self.facts)
        losses = {name: loss for loss, name in self.ranking(self.facts)}
        if donor is None or donor in losses:
            return donor
        strong = self.strong(self.facts)
        if not strong:
            return None
        other = self.draw(strong, self.rated(trial, self.facts)[-1])
        return other if losses[other] < losses[trial] else None


class Population(Both):
    """Both schedulers, for members that copy each other."""

    copies = True

    def max_concurrency(self):
        """Return the most slots that can ever be used: one for each member that is not over."""
        width = self.real.max_concurrency()
        phases = [self.reference.phase(trial) for trial in self.reference.members()]
        assert width == sum(phase != "left" for phase in phases)
        return width


def both(policy, plan):
    return Population(policy.scheduler(plan), Rescan(policy, plan))


class Slots:
    """Members that report, diverge, are lost, retried and killed in any order; no controller."""

    def __init__(self, scheduler, plan, rng, slots):
        self.scheduler, self.plan, self.rng, self.slots = scheduler, plan, rng, slots
        self.steps = {}  # by member
        self.running = {}  # its milestones
        self.paused = set()
        self.born = 0
        self.closed = False
        self.moves = []

    def fill(self):
        move = self.scheduler.next()
        self.moves.append(move)
        if isinstance(move, Advance):
            assert move.trial in self.paused
            assert move.change is None or move.change.donor != move.trial
            self.order(move.trial, move.milestones)
        elif isinstance(move, NewTrial):
            self.born += 1
            self.order(f"t{self.born:04d}", move.milestones)
            if self.born == self.plan.trials:
                self.close()
        return move

    def order(self, trial, milestones):
        self.paused.discard(trial)
        self.running[trial] = milestones
        self.steps.setdefault(trial, 0)
        self.scheduler.apply(Ordered(trial, self.plan.last))

    def close(self):
        if not self.closed:
            self.closed = True
            self.scheduler.apply(Closed())

    def happen(self):
        """Let something happen to a running or paused member."""
        luck = self.rng.random()
        if self.paused and luck < 0.01:
            return self.leave(self.rng.choice(sorted(self.paused)))  # stopped by a user
        trial = self.rng.choice(sorted(self.running))
        if luck < 0.03:
            return self.leave(trial)  # it failed for good
        if luck < 0.1:
            return self.order(trial, self.running[trial])  # a retry
        return self.report(trial)

    def report(self, trial):
        self.steps[trial] += 1
        step = self.steps[trial]
        loss = math.inf if self.rng.random() < 0.02 else self.rng.choice([self.rng.random(), 0.5])
        report = Report(trial, step, loss)
        self.scheduler.apply(report)
        if loss == math.inf or step == self.plan.last:
            return self.leave(trial)
        if step in self.running[trial] and self.scheduler.judge(report).verdict == "pause":
            del self.running[trial]
            self.paused.add(trial)
            self.scheduler.apply(Paused(trial))
        return None

    def leave(self, trial):
        self.running.pop(trial, None)
        self.paused.discard(trial)
        self.scheduler.apply(Left(trial))
