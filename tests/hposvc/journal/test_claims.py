"""The claims of sweeps that share a cluster: one writer each, gone with its lease."""

import pytest

from hposvc.journal import claims, supervision
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import SweepWait, find_waiting


@pytest.fixture
def store(database):
    store = Store(database)
    yield store
    store.close()


def take(store, sweep):
    lease = Lease(store, sweep)
    lease.acquire()
    return lease


def test_a_row_is_what_its_driver_wrote_last(store):
    lease = take(store, "a")
    claims.write(lease, "c1", {"wanted": 1}, {"slots": 1})
    claims.write(lease, "c2", {"wanted": 2}, {"slots": 2})
    [row] = claims.read(store)
    assert (row.sweep, row.cluster, row.claim, row.share) == (
        *("a", "c2"),
        {"wanted": 2},
        {"slots": 2},
    )
    assert row.live
    assert claims.read(store, "c1") == []
    lease.release()
    assert not claims.read(store, "c2")[0].live


def test_a_driver_that_was_replaced_writes_nothing_more(store):
    """Two writers of a usage count it twice, or lose it (kueue#13287)."""
    old = take(store, "a")
    claims.write(old, "c", {"wanted": 1}, {})
    old.release()
    new = take(store, "a")
    claims.write(old, "c", {"wanted": 99}, {})
    assert claims.read(store)[0].claim == {"wanted": 1}
    claims.write(new, "c", {"wanted": 2}, {})
    assert claims.read(store)[0].claim == {"wanted": 2}


def test_old_accounts_are_deleted_and_a_deleted_sweep_has_none(store):
    for sweep in ("a", "b"):
        claims.write(take(store, sweep), "c", {}, {})
    [first, second] = claims.read(store, "c")
    claims.drop_before(store, first.written)
    assert len(claims.read(store)) == 2
    Journal(store).remove("a")
    assert [row.sweep for row in claims.read(store)] == ["b"]
    claims.drop_before(store, second.written + 1)
    assert claims.read(store) == []


def test_the_rules_are_those_that_were_published_last(store):
    assert claims.read_rules(store) == {}
    journal = claims.journal_id(store)
    claims.publish_rules(store, {"max_ahead": 60.0})
    claims.publish_rules(store, {"max_ahead": 90.0})
    assert claims.read_rules(store) == {"max_ahead": 90.0}
    assert claims.journal_id(store) == journal


def test_a_wait_for_a_slot_is_told_while_a_driver_waits(store):
    wait = SweepWait("1 GPU", 7.0, ("b", "c"), 99.0)
    lease = take(store, "a")
    assert find_waiting(store, "a") is None
    claims.write(lease, "c", {"held": []}, {"wait": wait.data()})
    assert find_waiting(store, "a") == wait
    claims.write(lease, "c", {"held": [{}]}, {"wait": wait.data()})
    assert find_waiting(store, "a") is None, "it has a slot"
    claims.write(lease, "c", {"held": []}, {"wait": wait.data()})
    lease.release()
    assert find_waiting(store, "a") is None, "its driver is gone"


def test_the_wait_for_a_driver_ends_with_a_sweep_that_has_one(store):
    with store.writing() as connection:
        for sweep in ("a", "b", "c", "d", "e"):
            supervision.ask(connection, sweep)
    for sweep, end in (("a", 50.0), ("b", 20.0)):
        claims.write(take(store, sweep), "c", {}, {"ends_at": end})
    waits = {sweep: find_waiting(store, sweep) for sweep in ("c", "d", "e")}
    assert [wait.until for wait in waits.values()] == [20.0, 50.0, None]
    assert waits["d"].ahead == ("a", "b", "c")


def test_a_wait_in_words():
    names = tuple("abcdefg")
    text = SweepWait("2 CPU", 0.0, names, 3600.0).describe()
    assert text.startswith("waiting for 2 CPU since ")
    assert ", behind a, b, c, d, e and 2 more, until about " in text
    quota = SweepWait("1 GPU", 0.0, reason="the quota of user u, 1 GPU").describe()
    assert quota.endswith(": the quota of user u, 1 GPU")
