"""The supervisor starts the drivers that are missing, each once, as many as may work at once."""

import time

import pytest
from sqlalchemy import insert

from hposvc import api
from hposvc.events import Attached, Finished
from hposvc.journal import supervision
from hposvc.journal.database import LEASES
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease
from hposvc.server import supervisor as module
from hposvc.server.supervisor import Supervisor


class Drivers:
    """Drivers that do nothing until the test ends them."""

    def __init__(self):
        self.at_work, self.started, self.fails = set(), [], set()

    def start(self, row):
        self.started.append(row.id)
        if row.id in self.fails:
            raise OSError("no process can be started")
        self.at_work.add(row.id)

    def running(self):
        return self.at_work


@pytest.fixture
def sweeps(tmp_path):
    return api.Sweeps.open(tmp_path)


@pytest.fixture
def drivers():
    return Drivers()


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until the test moves it."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def ask(sweeps, *names):
    for name in names:
        sweeps.journal.create(SweepRow(name, name, "p", time.time(), {}, {}))
        with sweeps.journal.store.writing() as connection:
            supervision.ask(connection, name)


def test_drivers_start_in_the_order_of_submission_as_many_as_may_work(sweeps, drivers):
    ask(sweeps, "c", "a", "b")
    supervisor = Supervisor(sweeps, drivers, 2)
    supervisor.turn()
    supervisor.turn()
    assert drivers.started == ["c", "a"]
    drivers.at_work.remove("c")
    supervision.rest(sweeps.journal.store, supervision.find(sweeps.journal.store, "c"))
    supervisor.turn()
    assert drivers.started == ["c", "a", "b"]


def test_a_driver_of_an_earlier_server_is_known_by_its_lease(sweeps, drivers):
    ask(sweeps, "a", "b")
    Lease(sweeps.journal.store, "a").acquire()  # by a living process: this one
    supervisor = Supervisor(sweeps, drivers, 1)
    supervisor.turn()
    assert drivers.started == []


def test_a_sweep_whose_driver_died_with_an_earlier_server_gets_another_at_once(sweeps, drivers):
    ask(sweeps, "a")
    with sweeps.journal.store.writing() as connection:
        lease = {"sweep": "a", "driver": "d", "host": "elsewhere", "machine": "m", "pid": 1}
        connection.execute(insert(LEASES).values(**lease, started=0.0, renewed=0.0))
    Supervisor(sweeps, drivers, 1).turn()
    assert drivers.started == ["a"]


def pauses(supervisor, drivers, clock, count, before_death=lambda: None):
    """Return the seconds until each of `count` next drivers, if each dies at once."""
    seconds = []
    for _ in range(count):
        before_death()
        drivers.at_work.clear()
        began, many = clock[0], len(drivers.started)
        while len(drivers.started) == many:
            supervisor.turn()
            clock[0] += 0.5
        seconds.append(clock[0] - 0.5 - began)
    return seconds


def test_the_pauses_before_a_driver_is_started_again_grow(sweeps, drivers, clock):
    ask(sweeps, "a")
    supervisor = Supervisor(sweeps, drivers, 1)
    supervisor.turn()
    assert pauses(supervisor, drivers, clock, 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_progress_makes_the_pauses_short_again_and_beginning_is_none(sweeps, drivers, clock):
    ask(sweeps, "a")
    supervisor = Supervisor(sweeps, drivers, 1)
    supervisor.turn()
    journal = sweeps.journal

    def attach():
        journal.append("a", journal.last("a"), [Attached(1.0, "host:1")])

    assert pauses(supervisor, drivers, clock, 3, attach) == [1, 2, 4]
    journal.append("a", journal.last("a"), [Finished(2.0, "COMPLETED", "trials")])
    assert pauses(supervisor, drivers, clock, 2) == [1, 2]


def test_a_new_request_for_a_driver_is_not_kept_waiting(sweeps, drivers, clock):
    ask(sweeps, "a")
    supervisor = Supervisor(sweeps, drivers, 1)
    supervisor.turn()
    pauses(supervisor, drivers, clock, 5)
    drivers.at_work.clear()
    supervisor.turn()
    many = len(drivers.started)
    ask(sweeps, "a")
    supervisor.turn()
    assert len(drivers.started) == many + 1


def test_a_sweep_that_is_only_to_end_waits_for_no_other(sweeps, drivers):
    ask(sweeps, "works", "ends")
    supervisor = Supervisor(sweeps, drivers, 1)
    supervisor.turn()
    assert drivers.started == ["works"]
    sweeps.journal.request("ends", "stop")
    supervisor.turn()
    assert drivers.started == ["works", "ends"]


def test_sweeps_that_rest_cost_one_query(sweeps, drivers, monkeypatch):
    ask(sweeps, *(f"s{number}" for number in range(3)))
    store = sweeps.journal.store
    for each in supervision.supervised(store):
        supervision.rest(store, each)
    queries = []
    reading = type(store).reading
    monkeypatch.setattr(
        type(store), "reading", lambda self: (queries.append(self), reading(self))[1]
    )
    Supervisor(sweeps, drivers, 1).turn()
    assert sum(each is store for each in queries) == 1  # a thread of another test may read as well
    assert drivers.started == []
