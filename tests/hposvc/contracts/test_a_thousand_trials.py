"""A sweep of a thousand trials, compared with references that rescan all facts.

A PBT population is as large as its sweep, and a rescan of a thousand members takes minutes for each
question. So here PBT is compared with tables, at every question; for small populations the tables
are compared with the rescan (test_pbt.py, test_pbt_sweeps.py).
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
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.schedulers.fifo import Fifo
from hposvc.schedulers.hyperband import Hyperband
from hposvc.schedulers.pb2 import Pb2
from hposvc.schedulers.pbt import Pbt
from hposvc.schedulers.scheduler import Closed, Left, NewTrial, Ordered, Plan, SearchDone, Wait
from searchers.random_search import Random as RandomSearch

TRIALS, LAST = 1000, 9
EVERY = 100  # every how many questions the reference is asked too: each costs a rescan
POPULATION = {"interval": 3, "mutate": {"lr": {}}, "quantile": 0.1}


@dataclass
class Sampled:
    """A scheduler, compared with a reference at every `every`-th question."""

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

    def trials_to_stop(self):
        return self.real.trials_to_stop()

    def max_concurrency(self):
        return self.real.max_concurrency()

    def _asked(self):
        self.questions += 1
        asked = self.questions % self.every == 0
        self.compared += asked
        return asked


def plain(move):
    """Return a move with its change reduced to the donor: only a policy knows how values change."""
    return move if donor(move) is None else replace(move, change=donor(move))


def donor(move):
    """Return the donor of a move; None: the move copies no trial."""
    return getattr(getattr(move, "change", None), "donor", None)


@dataclass
class Queue:
    """A reference of fifo: all proposed trials run to the end."""

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
        return Wait() if self.began > self.left else SearchDone()

    def judge(self, report):
        return "continue"


def fifo(spec):
    return Sampled(Fifo().scheduler(Plan(1, LAST)), Queue(), every=1)


def population(kind):
    """Return how to make a population of all trials, beside its tables."""

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


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name != "hyperband" else name for name in PAIRS],
)
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
        SyncProposer(spec, RandomSearch()),
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
