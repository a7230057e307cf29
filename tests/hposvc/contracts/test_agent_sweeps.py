"""Sweeps of agents whose drivers die: nothing is lost, nothing is done twice, orders go on."""

from contextlib import suppress
from dataclasses import replace

import pytest
from agent_clients import Client, Crewed, Worker
from agent_sweeps import agents_spec, backend_on, quick_store
from invariants import check
from simulated_sweeps import CALLS, Lab, fold, troubled
from sqlalchemy import func, select

from hposvc.events import Attached, Ended, Failed, Ordered, Reported
from hposvc.journal.database import AGENT_MESSAGES, AGENT_ORDERS
from hposvc.journal.journal import Journal

SMALL = {"trials": {"max": 4, "parallel": 2}, "fidelity": {"max": 4}}
SWEEPS = {
    "fifo": {},
    "stop": {"scheduler": {"type": "asha", "eta": 2}},
    "promote": {"scheduler": {"type": "asha", "eta": 2, "mode": "promote"}},
    "median": {"scheduler": {"type": "median", "min_trials": 2}},
    "hyperband": {"scheduler": {"type": "hyperband", "eta": 2}},
    "pbt": {
        "scheduler": {"type": "pbt", "interval": 2, "mutate": {"lr": {}}, "quantile": 0.5},
    },
    "finalists": {"finalists": {"top": 1, "seeds": 2}},
    "seeds": {
        "scheduler": {"type": "asha", "eta": 2, "mode": "promote"},
        "trials": {**SMALL["trials"], "seeds": {"min": 2, "max": 3}},
    },
}


@pytest.fixture
def store():
    CALLS.clear()
    with quick_store() as store:
        yield store


def crewed(store, sweep, workers=2, curve=troubled, eager=False):
    """Return the backend's class with its workers, who outlive drivers."""
    clients = [Client(store, sweep, f"agent-{number}") for number in range(workers)]
    crew = [Worker(client, curve, eager) for client in clients]
    return type("OurCrew", (Crewed,), {"crew": crew})


def spec_of(name):
    return agents_spec(**{**SMALL, "failure": {"user_retries": 1}, **SWEEPS[name]})


class Dying(Journal):
    """Its process is killed at a commit: before it, or after it and before anything acts on it."""

    def __init__(self, store, commits, before):
        super().__init__(store)
        self.commits, self.before = commits, before

    def append(self, *arguments):
        self.commits -= 1
        if self.commits == 0 and self.before:
            raise KeyboardInterrupt
        last = super().append(*arguments)
        if self.commits == 0:
            raise KeyboardInterrupt
        return last


class Counting(Journal):
    commits = 0

    def append(self, *arguments):
        self.commits += 1
        return super().append(*arguments)


def check_mailbox(store, sweep):
    """Check that no message is left, and no order has a client."""
    mine = AGENT_MESSAGES.c.sweep == sweep
    open_orders = (AGENT_ORDERS.c.sweep == sweep) & (AGENT_ORDERS.c.state != "over")
    with store.reading() as connection:
        assert connection.execute(select(func.count()).where(mine)).scalar() == 0
        assert connection.execute(select(func.count()).where(open_orders)).scalar() == 0


def check_no_report_twice(events):
    seen = [(event.order, event.step) for event in events if isinstance(event, Reported)]
    assert len(seen) == len(set(seen))
    ends = [event.order for event in events if isinstance(event, Ended | Failed)]
    assert len(ends) == len(set(ends))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("name", SWEEPS)
def test_agents_carry_out_what_schedulers_decide(store, tmp_path, name, eager):
    spec, lab = spec_of(name), Lab(Journal(store), tmp_path)
    lab.run(spec, "s", backend_on(store, crewed(store, "s", eager=eager)))
    events = lab.events()
    state = check(spec, events)
    check_no_report_twice(events)
    if name in ("promote", "hyperband", "pbt"):
        starts = [event.order.start for event in events if isinstance(event, Ordered)]
        assert any(start is not None for start in starts)
    if name == "finalists":
        assert state.replicates.done == 2


QUICK = ["stop"]
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in SWEEPS]


@pytest.mark.long
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_driver_that_dies_at_any_commit_leaves_its_trials_to_the_next(
    store, tmp_path, name, before
):
    spec, counting = spec_of(name), Counting(store)
    Lab(counting, tmp_path).run(spec, "whole", backend_on(store, crewed(store, "whole")))
    kept = 0
    for commits in range(1, counting.commits + 1):
        CALLS.clear()
        sweep = f"at-{commits}"
        backend = backend_on(store, crewed(store, sweep))
        with suppress(KeyboardInterrupt):
            Lab(Dying(store, commits, before), tmp_path).run(spec, sweep, backend)
        lab = Lab(Journal(store), tmp_path)
        lab.run(spec, sweep, backend)
        events = lab.events(sweep)
        check(spec, events)
        check_no_report_twice(events)
        kept += sum(len(event.kept) for event in events if isinstance(event, Attached))
    assert kept >= counting.commits / 2, "agents went on with most orders"


def test_a_sweep_is_extended_paused_and_resumed(store, tmp_path):
    spec, lab = spec_of("stop"), Lab(Journal(store), tmp_path)
    backend = crewed(store, "s", curve=lambda params, step: ({"loss": 1 / step}, 1.0))
    lab.run(spec, "s", backend_on(store, backend))
    lab.journal.request("s", "extend", changes={"trials.max": 6})
    lab.journal.request("s", "pause")
    lab.run(spec, "s", backend_on(store, backend))
    state = fold(spec, lab.events())
    assert state.state == "PAUSED"
    assert not state.trials.orders
    lab.run(spec, "s", backend_on(store, backend))
    check(replace(spec, trials=replace(spec.trials, max=6)), lab.events())
