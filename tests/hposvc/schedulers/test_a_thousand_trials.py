"""A sweep of a thousand trials, held against references that rescan everything.

PBT's population is as large as its sweep, and its rescan takes minutes for one question about a
thousand members. Here tables stand in for it, which are asked every question; in small populations
they are held against the rescan (test_pbt.py, test_pbt_sweeps.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import asha_reference
import hyperband_reference
import median_reference
import pytest
from pbt_tables import Tables
from simulated_sweeps import fold, make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Inline
from hposvc.runner import Runner
from hposvc.schedulers.fifo import Fifo
from hposvc.schedulers.hyperband import Hyperband
from hposvc.schedulers.pb2 import Pb2
from hposvc.schedulers.pbt import Pbt
from hposvc.schedulers.scheduler import Closed, Left, NewTrial, Ordered, Over, Plan, Wait
from hposvc.store import Store
from searchers.random_search import Random as RandomSearch

TRIALS, LAST = 1000, 9
EVERY = 100  # questions between two that the reference is asked too: each costs a rescan
POPULATION = {"interval": 3, "mutate": {"lr": {}}, "quantile": 0.1}


@dataclass
class Sampled:
    """A scheduler, and a reference that is asked now and then."""

    real: Any
    reference: Any
    every: int = EVERY
    questions: int = 0
    compared: int = 0
    copied: int = 0

    @property
    def copies(self):
        return self.real.copies

    def apply(self, fact):
        self.real.apply(fact)
        self.reference.apply(fact)

    def next(self):
        move = self.real.next()
        self.copied += donor(move) is not None
        if self._asked():
            assert plain(move) == plain(self.reference.next())
        return move

    def judge(self, report):
        decision = self.real.judge(report)
        if self._asked():
            assert decision.verdict == self.reference.judge(report)
        return decision

    def cut(self):
        return self.real.cut()

    def width(self):
        return self.real.width()

    def _asked(self):
        self.questions += 1
        asked = self.questions % self.every == 0
        self.compared += asked
        return asked


def plain(move):
    """A move with the donor alone of its change: how values are then found is a policy's own."""
    return move if donor(move) is None else replace(move, change=donor(move))


def donor(move):
    """Whom the trial copies; None: nobody."""
    return getattr(getattr(move, "change", None), "donor", None)


@dataclass
class Queue:
    """What fifo promises: all that is proposed runs to the end."""

    began: int = 0
    left: int = 0
    closed: bool = False

    def apply(self, fact):
        self.began += isinstance(fact, Ordered)
        self.left += isinstance(fact, Left)
        self.closed |= isinstance(fact, Closed)

    def next(self):
        if not self.closed:
            return NewTrial(LAST)
        return Wait() if self.began > self.left else Over()

    def judge(self, report):
        return "continue"


def fifo(spec):
    return Sampled(Fifo().scheduler(Plan(1, LAST)), Queue(), every=1)


def population(kind):
    """All trials are its members."""

    def pair(spec):
        policy = kind(**POPULATION)
        return Sampled(policy.scheduler(spec.plan), Tables(policy, spec.plan), every=1)

    return pair


def hyperband(spec):
    kinds = hyperband_reference.layout(3, 1, LAST)
    real = Hyperband(3).scheduler(Plan(1, LAST))
    return Sampled(real, hyperband_reference.Rescan(3, kinds))


def median(spec):
    both = median_reference.both(5, 2, 1, LAST)
    return Sampled(both.real, both.reference)


def asha(mode):
    def pair(spec):
        both = asha_reference.both(mode, 3, 1, LAST)
        return Sampled(both.real, both.reference)

    return pair


PAIRS = {
    "fifo": ({"type": "fifo"}, fifo),
    "asha": ({"type": "asha", "eta": 3}, asha("stop")),
    "asha, promote": ({"type": "asha", "eta": 3, "mode": "promote"}, asha("promote")),
    "hyperband": ({"type": "hyperband", "eta": 3}, hyperband),
    "median": ({"type": "median", "min_trials": 5, "interval": 2}, median),
    "pbt": ({"type": "pbt", **POPULATION}, population(Pbt)),
    "pb2": ({"type": "pb2", **POPULATION}, population(Pb2)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_thousand_trials_are_decided_as_by_the_reference(tmp_path, name):
    scheduler, pair = PAIRS[name]
    spec = make_spec(scheduler=scheduler, trials={"max": TRIALS, "parallel": 16}, seed=7)
    controller = make_controller(spec)
    controller.scheduler = pair(spec)
    journal = Journal(Store(f"sqlite:///{tmp_path / 'x.db'}"))
    state = Runner(
        "s",
        controller,
        Simulation(Setting("s", spec, tmp_path, tmp_path)),
        Inline(spec, RandomSearch()),
        journal,
        Lease(journal.store, "s"),
    ).run("here:1")
    assert (state.state, len(state.trials)) == ("COMPLETED", TRIALS)
    assert controller.scheduler.compared >= 10
    assert (controller.scheduler.copied >= 100) == controller.scheduler.copies
    again = fold(spec, (event for _, event in journal.read("s")))
    assert {n: t.steps for n, t in again.trials.items()} == {
        name: trial.steps for name, trial in state.trials.items()
    }
    journal.store.close()
