"""Simulated training whose best learning rate falls with the steps; a slot for each member."""

import math

import numpy as np

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
)
from searchers.space import Float, Space

SPACE = Space({"lr": Float(1e-5, 1.0, log=True), "decay": Float(0.0, 1.0)})
LAST, MEMBERS = 40, 8
WIDTH = 0.7  # of the range of good rates, in powers of ten


def factor(params, step):
    """Return a step's factor of the loss: 0.85 at best, 1.1 with a rate that is far too high."""
    off = (math.log10(params["lr"]) + 0.5 + 3.5 * step / LAST) / WIDTH
    far = off**2 + ((params["decay"] - 0.5) / 0.3) ** 2
    return 1.1 if off > 3 else 1 - 0.15 * math.exp(-0.5 * far)


class Members:
    """A population that trains side by side, lowest step first; a copy takes over the loss."""

    def __init__(self, policy, seed):
        self.scheduler = policy.scheduler(Plan(1, LAST, MEMBERS, seed))
        self.rng = np.random.default_rng(seed)
        self.params, self.loss, self.clock, self.milestones = {}, {}, {}, {}
        self.running = set()

    def run(self):
        while not isinstance(move := self.scheduler.next(), SearchDone):
            if isinstance(move, NewTrial):
                self.begin(f"t{len(self.params)}", move)
            elif isinstance(move, Advance):
                self.resume(move)
            else:
                self.step(min(self.running, key=lambda trial: (self.clock[trial], trial)))
        return min(self.loss.values())

    def begin(self, trial, move):
        self.params[trial] = SPACE.sample(self.rng)
        self.loss[trial], self.clock[trial] = 1.0, 0
        self.order(trial, move)
        if len(self.params) == MEMBERS:
            self.scheduler.apply(Closed())

    def resume(self, move):
        trial, change = move.trial, move.change
        if change is not None:
            self.params[trial] = change.values(SPACE, self.params[change.donor], self.rng)
            self.loss[trial] = self.loss[change.donor]
        self.order(trial, move, change)

    def order(self, trial, move, change=None):
        self.milestones[trial] = move.milestones
        self.running.add(trial)
        donor = None if change is None else change.donor
        self.scheduler.apply(Ordered(trial, LAST, self.params[trial], donor))

    def step(self, trial):
        self.clock[trial] += 1
        step = self.clock[trial]
        self.loss[trial] *= factor(self.params[trial], step)
        report = Report(trial, step, self.loss[trial] * (1 + 0.01 * self.rng.normal()))
        self.scheduler.apply(report)
        if step == LAST:
            self.running.remove(trial)
            self.scheduler.apply(Left(trial))
        elif step in self.milestones[trial] and self.scheduler.judge(report).verdict == "pause":
            self.running.remove(trial)
            self.scheduler.apply(Paused(trial))


def reached(policy, seed):
    """Return log10 of the lowest final loss."""
    return math.log10(Members(policy, seed).run())
