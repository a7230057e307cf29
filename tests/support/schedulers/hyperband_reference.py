"""Hyperband as its paper has it, by rescanning all facts; and slots that obey and misbehave."""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from both import Both

from hposvc.schedulers.hyperband import Hyperband
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
from searchers.searcher import Proposal


def layout(eta, first, last):
    """Algorithm 1: (n, steps of the rungs) of s_max, …, 0."""
    resource = Fraction(last, first)
    s_max = max(s for s in range(64) if eta**s <= resource)
    budget = (s_max + 1) * resource
    return [
        (
            math.ceil(budget / resource * Fraction(eta**s, s + 1)),
            [math.floor(resource / eta**s * eta**i * first) for i in range(s + 1)],
        )
        for s in range(s_max, -1, -1)
    ]


def theory(eta, first, last, trials):
    """The most steps that so many trials may take: n trials at each rung's share of last."""
    kinds, spent, begun = layout(eta, first, last), 0, 0
    while trials > 0:
        n, steps = kinds[begun % len(kinds)]
        spent += len(steps) * n * Fraction(last, eta ** (len(steps) - 1))
        trials -= n
        begun += 1
    return spent


@dataclass
class Rescan:
    """Every answer looks at all that was ever told, from the beginning."""

    eta: int
    kinds: list
    facts: list = field(default_factory=list)

    def apply(self, fact):
        self.facts.append(fact)

    def next(self):
        advances, _ = self.answers()
        if advances:
            return advances[0]
        if any(isinstance(fact, Closed) for fact in self.facts):
            last = {}
            for fact in self.facts:
                if isinstance(fact, Ordered | Paused | Left):
                    last[fact.trial] = type(fact)
            return Wait() if Ordered in last.values() else SearchDone()
        brackets = self.brackets()
        n, steps = self.kinds[(len(brackets) - 1) % len(self.kinds)]
        if not brackets or len(brackets[-1]) == n:
            _, steps = self.kinds[len(brackets) % len(self.kinds)]
        return NewTrial(steps[0])

    def brackets(self):
        """The trials of each bracket, in the order in which they were first ordered."""
        brackets, until = [], {}
        for fact in self.facts:
            if not isinstance(fact, Ordered):
                continue
            if fact.trial not in until:
                n, steps = self.kinds[(len(brackets) - 1) % len(self.kinds)]
                open_ = brackets and len(brackets[-1]) < n
                if not open_ or any(until[trial] > steps[0] for trial in brackets[-1]):
                    brackets.append([])
                brackets[-1].append(fact.trial)
            until[fact.trial] = fact.until
        return brackets

    def answers(self):
        """Return the promotions that are due, and the trials to stop."""
        advances, cut = [], []
        for number, trials in enumerate(self.brackets()):
            n, steps = self.kinds[number % len(self.kinds)]
            members = trials
            for i, step in enumerate(steps):
                at = self.complete(members, step, len(trials) == n)
                if at is None:
                    break
                keep = max(1, len(trials) // self.eta ** (i + 1)) if i + 1 < len(steps) else 0
                ranked = self.ranked(members, at)
                finite = [trial for loss, trial in ranked if loss < math.inf]
                chosen = finite[:keep]
                gone = self.left(len(self.facts))
                cut += [t for _, t in ranked if t not in chosen and t not in gone]
                advances += [
                    Advance(trial, steps[i + 1])
                    for trial in chosen
                    if trial not in gone and Ordered(trial, steps[i + 1]) not in self.facts
                ]
                members = chosen
        return advances, cut

    def complete(self, members, step, full):
        """How many facts there were when the rung's last trial was there; None: it is not yet."""
        missing, closed, ordered = set(members), full, set()
        for at, fact in enumerate(self.facts, 1):
            closed = closed or isinstance(fact, Closed)
            if isinstance(fact, Ordered) and fact.until == step:
                ordered.add(fact.trial)
            elif isinstance(fact, Left) or (isinstance(fact, Paused) and fact.trial in ordered):
                missing.discard(fact.trial)
            if closed and not missing:
                return at
        return None

    def ranked(self, members, at):
        """(loss, trial) of those that had not left after so many facts, best first."""
        losses = {f.trial: f.loss for f in self.facts[:at] if isinstance(f, Report)}
        gone = self.left(at)
        there = [trial for trial in members if trial not in gone]
        return sorted(
            ((losses[trial], trial) for trial in there),
            key=lambda pair: (pair[0], members.index(pair[1])),
        )

    def left(self, at):
        return {fact.trial for fact in self.facts[:at] if isinstance(fact, Left)}


class Brackets(Both):
    """Both schedulers, also compared in the trials to stop; Hyperband judges no reports."""

    def trials_to_stop(self):
        cuts = self.real.trials_to_stop()
        assert sorted(cut.trial for cut in cuts) == sorted(self.reference.answers()[1])
        return cuts

    def judge(self, report):
        return self.real.judge(report)


def both(eta, first, last, brackets=None):
    reference = Rescan(eta, layout(eta, first, last)[:brackets])
    return Brackets(Hyperband(eta, brackets).scheduler(Plan(first, last)), reference)


@dataclass(frozen=True)
class Own:
    """A search method of the user's own."""

    def suggest(self, space, history, n, rng):
        return [Proposal(space.sample(rng)) for _ in range(n)]


def falling(params, step):
    """Better the larger lr is."""
    return {"loss": 1 / step - math.log10(params["lr"])}, 1.0


def rising(params, step):
    """Better the smaller lr is."""
    return {"loss": 1 / step + math.log10(params["lr"])}, 1.0


@dataclass
class Renewed:
    """A scheduler that a new one replaces when a trial is retried, as the controller does it."""

    policy: Any
    plan: Plan
    facts: list = field(default_factory=list)
    real: Any = None

    def __post_init__(self):
        self.real = self.policy.scheduler(self.plan)
        for fact in self.facts:
            self.real.apply(fact)

    def apply(self, fact):
        self.facts.append(fact)
        self.real.apply(fact)

    def take_back(self, trial):
        self.facts = [fact for fact in self.facts if fact != Left(trial)]
        self.__post_init__()

    def __getattr__(self, name):
        return getattr(self.real, name)


class Cluster:
    """Slots whose trials report, fail, are retried, killed and diverge in any order.

    Where they may return, those that failed are tried again later, when somebody asks.
    """

    def __init__(self, scheduler, rng, last, slots, most, trouble=True, returns=False):
        self.scheduler, self.rng, self.last = scheduler, rng, last
        self.slots, self.most = slots, most
        self.trouble, self.returns = trouble, returns
        self.failed, self.returned = {}, set()  # trial: until; those that were tried again
        self.dropped, self.stopped = set(), set()  # that ended otherwise than the scheduler wanted
        self.losses = defaultdict(dict)  # by trial and step
        self.steps = defaultdict(int)  # the last reported, by trial
        self.running, self.paused, self.lost = {}, {}, {}  # trial: until
        self.closed = False
        self.allowed, self.known = math.inf, 0  # may be out from here on, as of so many trials

    def run(self):
        """To the end; False if there is none."""
        for _ in range(100_000):
            if not self.closed and self.rng.random() < self.trouble * 0.0005:
                self.close()  # the space is used up
            if self.paused and self.rng.random() < self.trouble * 0.003:
                self.drop(self.rng.choice(list(self.paused)))  # somebody kills it
            if self.failed and self.rng.random() < 0.01:
                self.reopen()
            free = len(self.running) < self.slots
            if not self.running or (free and self.rng.random() < 0.7):
                if self.fill():
                    return True
            else:
                self.work()
        return False

    def fill(self):
        """Use a free slot, as the runner does; True if it is over."""
        self.cut()
        if self.lost:
            trial, until = self.lost.popitem()
            self.order(trial, until)
            return False
        move = self.scheduler.next()
        if isinstance(move, Advance):
            assert self.paused.pop(move.trial) < move.until
            self.order(move.trial, move.until)
        elif isinstance(move, NewTrial):
            assert not self.closed
            self.begin(move.until)
        elif isinstance(move, Wait):
            assert self.running
            assert self.closed, "a slot idles though there are new trials"
        return isinstance(move, SearchDone)

    def begin(self, until):
        trial = f"t{len(self.steps) + 1:04d}"
        self.steps[trial] = 0
        if len(self.steps) == self.most:
            self.close()  # before the last one is ordered
            if self.rng.random() < 0.3:
                self.cut()  # the driver dies in between, and the next one asks this first
        if self.rng.random() < self.trouble * 0.02:
            self.drop(trial)  # somebody kills it before it has an order
        else:
            self.order(trial, until)

    def cut(self):
        cuts = self.scheduler.trials_to_stop()
        for cut in cuts if self.rng.random() < 0.9 else cuts[:1]:
            assert cut.trial in self.paused
            assert cut.reason == "rung"
            self.stopped.add(cut.trial)
            self.leave(cut.trial)

    def order(self, trial, until):
        self.running[trial] = until
        self.scheduler.apply(Ordered(trial, until))
        if self.closed:
            allowed = math.inf if len(self.steps) > self.known else self.allowed
            self.known = len(self.steps)
            self.allowed = min(allowed, self.scheduler.max_concurrency())
            assert len(self.running) + len(self.lost) <= self.allowed

    def close(self):
        if not self.closed:
            self.closed = True
            self.scheduler.apply(Closed())

    def work(self):
        """Let a running trial report a step, fail, or be lost with its node."""
        trial = self.rng.choice(list(self.running))
        luck = self.rng.random()
        if luck < self.trouble * 0.01:
            if self.returns:
                self.failed[trial] = self.running[trial]
            self.drop(trial)
        elif luck < self.trouble * 0.04:
            self.lost[trial] = self.running.pop(trial)  # no fact until it is ordered again
        elif self.steps[trial] < self.running[trial]:
            self.report(trial)
        elif self.steps[trial] == self.last:
            self.leave(trial)
        else:
            self.paused[trial] = self.running.pop(trial)
            self.scheduler.apply(Paused(trial))

    def report(self, trial):
        step = self.rng.randint(self.steps[trial] + 1, self.running[trial])
        loss = self.rng.choice([self.rng.random(), self.rng.random(), 0.5])
        if self.rng.random() < self.trouble * 0.02:
            loss = math.inf
        self.steps[trial], self.losses[trial][step] = step, loss
        self.scheduler.apply(Report(trial, step, loss))
        if loss == math.inf:
            self.drop(trial)  # the controller ends it

    def drop(self, trial):
        """End a trial, whatever its scheduler intended."""
        self.dropped.add(trial)
        self.leave(trial)

    def reopen(self):
        """Retry a failed trial, as by a user's request."""
        trial, until = self.failed.popitem()
        step = self.steps[trial]
        self.returned.add(trial)
        self.allowed = math.inf
        self.scheduler.take_back(trial)
        if step < until:
            self.lost[trial] = until
        elif step == self.last:
            self.leave(trial)
        else:  # its steps were done
            self.paused[trial] = until
            self.scheduler.apply(Paused(trial))

    def leave(self, trial):
        for trials in (self.running, self.paused, self.lost):
            trials.pop(trial, None)
        self.scheduler.apply(Left(trial))


def fates(cluster, facts, eta, first, last):
    """Yield the fate of each retried trial, at each rung that it reached.

    Yields three truths: the trial was promoted; it may be promoted (fewer than the rung's places
    were better, among trials that were neither dropped nor retried; if others were dropped that
    came to the rung, among those of them that were promoted, since the places of the dropped ones
    are free by now); and it must be promoted (fewer than the rung's places were as good, among all
    trials of the bracket).
    """
    kinds = layout(eta, first, last)
    for number, members in enumerate(Rescan(eta, kinds, facts).brackets()):
        _, steps = kinds[number % len(kinds)]
        for trial in cluster.returned.intersection(members):
            for rung, (step, after) in enumerate(pairwise(steps)):
                losses = {member: cluster.losses[member].get(step, math.inf) for member in members}
                loss = losses.pop(trial)
                promoted = Ordered(trial, after) in facts
                ended = trial in cluster.stopped and step == cluster.steps[trial]
                if loss == math.inf or not (promoted or ended):
                    continue
                places = max(1, len(members) // eta ** (rung + 1))
                tainted = cluster.dropped | cluster.returned
                better = {member for member in losses.keys() - tainted if losses[member] < loss}
                dropped = cluster.dropped.intersection(members) - {trial}
                if any(step in cluster.losses[member] for member in dropped):
                    better = {member for member in better if Ordered(member, after) in facts}
                as_good = sum(other <= loss for other in losses.values())
                yield promoted, len(better) < places, as_good < places
