"""A reference ASHA that rescans all facts for every answer, and slots that obey a scheduler."""

import math
from dataclasses import dataclass, field
from itertools import pairwise

from both import Both

from hposvc.schedulers.asha import Asha
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
    rungs,
)


@dataclass
class Rescan:
    """ASHA as its docstring describes it: every answer looks at all facts so far."""

    mode: str
    eta: int
    steps: tuple[int, ...]
    facts: list = field(default_factory=list)

    def apply(self, fact):
        self.facts.append(fact)

    def judge(self, report):
        if self.mode == "promote":
            return "continue"
        rung = [f.loss for f in self.facts if isinstance(f, Report) and f.step == report.step]
        better = sum(loss < report.loss for loss in rung)
        best = better < math.ceil(len(rung) / self.eta)
        return "continue" if best and report.loss < math.inf else "stop"

    def next(self):
        closed = any(isinstance(fact, Closed) for fact in self.facts)
        if self.mode == "stop":
            new = NewTrial(self.steps[-1], self.steps[:-1])
        else:
            new = NewTrial(self.steps[0])
            for rung, after in reversed(list(pairwise(self.steps))):
                best = self._promotable(rung)
                if best is not None:
                    return Advance(best, after)
        busy = any(self._phase(trial) == "running" for trial in self._trials())
        return new if not closed else Wait() if busy else SearchDone()

    def _promotable(self, rung):
        """Return the best unpromoted trial among the rung's best floor(n/eta) (Algorithm 2)."""
        arrived = sorted(
            (f.loss, f.trial) for f in self.facts if isinstance(f, Report) and f.step == rung
        )
        for loss, trial in arrived[: len(arrived) // self.eta]:
            waits = self._phase(trial) == "paused" and self._until(trial) == rung
            if waits and loss < math.inf:
                return trial
        return None

    def _trials(self):
        return {fact.trial for fact in self.facts if isinstance(fact, Ordered)}

    def _phase(self, trial):
        phases = {Ordered: "running", Paused: "paused", Left: "left"}
        history = [phases[type(f)] for f in self.facts if type(f) in phases and f.trial == trial]
        return history[-1] if history else "new"

    def _until(self, trial):
        orders = [f for f in self.facts if isinstance(f, Ordered) and f.trial == trial]
        return orders[-1].until


@dataclass
class Counted(Both):
    """Both schedulers, with a count of the calls of `next`."""

    asked: int = 0

    def next(self):
        self.asked += 1
        return super().next()


def both(mode, eta, first, last):
    steps = rungs(first, last, eta)
    return Counted(Asha(eta, mode).scheduler(Plan(first, last)), Rescan(mode, eta, steps))


class Cluster:
    """Slots whose trials report, fail, are retried and leave in any order; no controller."""

    def __init__(self, scheduler, rng, steps, most):
        self.scheduler, self.rng, self.steps, self.most = scheduler, rng, steps, most
        self.losses = {}  # of rungs that were reported, by trial
        self.running = {}  # trial -> until
        self.trials = 0
        self.closed = False

    def order(self, trial, until):
        self.running[trial] = until
        self.losses.setdefault(trial, {})
        self.scheduler.apply(Ordered(trial, until))

    def fill(self):
        move = self.scheduler.next()
        if isinstance(move, Advance):
            self.order(move.trial, move.until)
        elif isinstance(move, NewTrial):
            self.trials += 1
            self.order(f"t{self.trials:04d}", move.until)
            if self.trials == self.most:
                self.close()
        return move

    def close(self):
        if not self.closed:
            self.closed = True
            self.scheduler.apply(Closed())

    def advance(self):
        """Let a running trial report its next rung, fail, or be retried after a loss."""
        trial = self.rng.choice(list(self.running))
        until, luck = self.running[trial], self.rng.random()
        if luck < 0.05:
            return self.leave(trial)
        if luck < 0.15:
            return self.order(trial, until)  # a retry; what it reported stands
        ahead = [step for step in self.steps if step not in self.losses[trial] and step <= until]
        if ahead:
            loss = self.rng.choice([self.rng.random(), 0.5, math.inf])
            self.losses[trial][ahead[0]] = loss
            report = Report(trial, ahead[0], loss)
            self.scheduler.apply(report)
            milestone = ahead[0] < self.steps[-1]
            if loss == math.inf or (milestone and self.scheduler.judge(report).verdict == "stop"):
                return self.leave(trial)
        if until in self.losses[trial]:
            if until == self.steps[-1]:
                return self.leave(trial)
            del self.running[trial]
            self.scheduler.apply(Paused(trial))
        return None

    def leave(self, trial):
        del self.running[trial]
        self.scheduler.apply(Left(trial))
