"""A sweep is to have a driver from the request for one until a driver has let it rest."""

import os
import socket

import pytest
from sqlalchemy import insert

from hposvc.events import Requested
from hposvc.journal import operations, supervision
from hposvc.journal.database import LEASES, Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import find_waiting


@pytest.fixture
def store(database):
    store = Store(database)
    yield store
    store.close()


def ask(store, *sweeps, **options):
    for sweep in sweeps:
        with store.writing() as connection:
            supervision.ask(connection, sweep, **options)


def names(store):
    return [supervised.sweep for supervised in supervision.supervised(store)]


def test_sweeps_come_in_the_order_in_which_drivers_were_asked_for(store):
    ask(store, "b", "a", "c")
    ask(store, "b", accept_code=True)
    assert names(store) == ["b", "a", "c"]
    assert supervision.find(store, "b").accept_code
    assert not supervision.find(store, "a").accept_code


def test_a_sweep_rests_unless_a_driver_was_asked_for_once_more(store):
    ask(store, "a", "b")
    began_a, began_b = supervision.find(store, "a"), supervision.find(store, "b")
    ask(store, "b")
    rested = []
    supervision.rest(store, began_a, lambda: rested.append("a"))
    supervision.rest(store, began_b, lambda: rested.append("b"))
    assert rested == ["a"]
    assert supervision.find(store, "a") is None
    assert names(store) == ["b"]


def test_the_holder_of_the_lease_is_known(store):
    ask(store, "held", "free", "dead")
    Lease(store, "held").acquire()
    dead = Lease(store, "dead")
    dead.acquire()
    with store.writing() as connection:
        dead.release_in(connection)
        connection.execute(
            insert(LEASES).values(
                sweep="dead",
                driver="d",
                host="elsewhere",
                machine="m",
                pid=1,
                started=0.0,
                renewed=0.0,
            )
        )
    held, free, dead = supervision.supervised(store)
    assert (held.driver.state, held.driver.place) == (
        "alive",
        f"{socket.gethostname()}:{os.getpid()}",
    )
    assert (free.driver.state, dead.driver.state) == ("none", "dead")


def test_a_pending_request_to_end_the_sweep_is_known(store):
    journal = Journal(store)
    ask(store, "ends", "trial", "more")
    journal.request("ends", "pause")
    journal.request("trial", "stop", "t0001")
    journal.request("more", "extend", changes={"trials.max": 3})
    assert [supervised.ends for supervised in supervision.supervised(store)] == [True, False, False]


def test_an_exclusion_needs_no_slots_unless_somebody_asked_for_more(store):
    """Its driver ends when it has carried that out: a resume or an extension goes on."""
    journal = Journal(store)
    names = ("alone", "beside-a-resume", "beside-more", "beside-a-promotion")
    ask(store, *names)
    with store.writing() as connection:
        for name in names:
            operations.begin(connection, "exclude", name, "t0001", "ann")
        operations.begin(connection, "resume", "beside-a-resume", None, "ann")
        server = operations.this_server()  # which carries that out itself
        operations.begin(connection, "promote", "beside-a-promotion", None, "ann", server)
    journal.request("beside-more", "extend", changes={"trials.max": 3})
    assert [supervised.ends for supervised in supervision.supervised(store)] == [
        *(True, False, False, True)
    ]


def test_a_pending_pause_can_be_withdrawn(store):
    journal = Journal(store)
    journal.request("s", "pause")
    journal.request("s", "stop")
    journal.withdraw("s", "pause")
    assert [asked.verb for _, asked in journal.requests("s")] == ["stop"]
    assert all(isinstance(asked, Requested) for _, asked in journal.requests("s"))


def test_a_sweep_waits_behind_those_with_drivers_and_those_that_asked_before(store):
    ask(store, "a", "b", "c", "d")
    Lease(store, "d").acquire()
    queue = find_waiting(store, "c")
    assert queue.ahead == ("d", "a", "b")
    assert queue.describe().endswith(", behind d, a, b")
    assert find_waiting(store, "a").ahead == ("d",)
    assert find_waiting(store, "d") is None, "it has a driver"
    assert find_waiting(store, "other") is None, "nobody asked for one"
