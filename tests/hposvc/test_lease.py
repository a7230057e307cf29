"""One driver at a time: the living keeps its sweep, the dead gives way."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest
from sqlalchemy import select, update

from hposvc import lease as leases
from hposvc.lease import EXPIRY_S, RENEW_S, Busy, Lease, began, driver_state
from hposvc.store import LEASES, Store, StoreError

HOLDER = """
import sys
from hposvc.lease import Lease
from hposvc.store import Store
Lease(Store(sys.argv[1]), "s").acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(leases, "WATCH_S", 0.3)
    monkeypatch.setattr(leases, "LOOK_S", 0.02)


@pytest.fixture
def store(database):
    store = Store(database)
    yield store
    store.close()


@pytest.fixture
def holder(database, store):
    """Another process that holds the sweep."""
    command = [sys.executable, "-c", HOLDER, database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout.readline() == "held\n"
        yield one
        one.kill()


def change(store, **values):
    with store.writing() as connection:
        connection.execute(update(LEASES).values(**values))


def row(store):
    with store.reading() as connection:
        return connection.execute(select(LEASES)).one_or_none()


def test_a_sweep_that_nobody_drives_has_no_driver(store):
    assert driver_state(store, "s") == "none"
    lease = Lease(store, "s")
    lease.acquire()
    assert driver_state(store, "s") == "alive"
    assert (row(store).host, row(store).pid) == (socket.gethostname(), os.getpid())
    lease.release()
    assert driver_state(store, "s") == "none"


def test_a_living_driver_keeps_its_sweep(store, holder):
    assert driver_state(store, "s") == "alive"
    with pytest.raises(Busy, match=rf"process {holder.pid} on .*hposvc stop s"):
        Lease(store, "s").acquire()
    Lease(store, "other").acquire()


def test_two_drivers_in_one_process_exclude_each_other_too(store):
    Lease(store, "s").acquire()
    with pytest.raises(Busy):
        Lease(store, "s").acquire()


def test_a_killed_driver_is_replaced_at_once(store, holder):
    holder.kill()
    holder.wait()
    assert driver_state(store, "s") == "dead"
    Lease(store, "s").acquire()
    assert row(store).pid == os.getpid()


def test_a_driver_whose_parent_did_not_collect_it_is_dead(store, holder):
    """A zombie still has its process id."""
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE
    assert driver_state(store, "s") == "dead"


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["first", "own"])
def test_a_process_id_that_was_used_again_is_no_driver(store, pid):
    """As after a container's restart, where the driver always has the same one."""
    Lease(store, "s").acquire()
    change(store, pid=pid, started=began(pid) - 60)
    assert driver_state(store, "s") == "dead"
    Lease(store, "s").acquire()


def test_a_driver_on_another_host_has_until_its_lease_expires(store):
    Lease(store, "s").acquire()
    change(store, host="elsewhere", renewed=time.time() - EXPIRY_S + 20)
    with pytest.raises(Busy, match="on elsewhere"):
        Lease(store, "s").acquire()
    change(store, renewed=time.time() - EXPIRY_S - 1)
    assert driver_state(store, "s") == "dead"
    Lease(store, "s").acquire()
    assert row(store).host == socket.gethostname()


@pytest.mark.parametrize("ahead_s", [-7200, 7200], ids=["slow", "fast"])
def test_a_driver_on_a_host_whose_clock_differs_keeps_its_sweep(store, monkeypatch, ahead_s):
    """Its lease looks expired, and it renews it while somebody else looks."""
    monkeypatch.setattr(leases, "WATCH_S", 20)
    Lease(store, "s").acquire()
    change(store, host="elsewhere", renewed=time.time() + ahead_s)
    done = threading.Event()

    def renew():
        while not done.wait(0.05):
            change(store, renewed=time.time() + ahead_s)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(Busy, match="elsewhere, whose clock differs"):
            Lease(store, "s").acquire()
    finally:
        done.set()
        thread.join()


def test_a_lease_from_the_future_does_not_last_for_ever(store):
    """A clock that was hours ahead, and a driver that is gone."""
    Lease(store, "s").acquire()
    change(store, host="elsewhere", renewed=time.time() + 7200)
    Lease(store, "s").acquire()
    assert row(store).host == socket.gethostname()


def test_setting_the_clock_kills_no_driver(store, holder, monkeypatch):
    """psutil derives when a process began from the wall clock."""
    jumped = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: jumped(self) + 3600)
    monkeypatch.setattr(time, "time", lambda: 12.0)
    assert driver_state(store, "s") == "alive"


def test_a_lease_is_renewed_when_it_is_time_to(store):
    lease = Lease(store, "s")
    lease.acquire()
    change(store, renewed=1.0)
    lease.renew()
    assert row(store).renewed == 1.0
    lease.renewed -= RENEW_S
    lease.renew()
    assert time.time() - row(store).renewed < 60


def test_a_driver_that_was_replaced_neither_renews_nor_releases_the_other_s_lease(store):
    old, new = Lease(store, "s"), Lease(store, "s")
    old.acquire()
    change(store, host="elsewhere", renewed=1.0)
    new.acquire()
    old.renewed = 0.0
    seen = row(store)
    with pytest.raises(Busy, match="took over"):
        old.renew()
    old.release()
    assert row(store) == seen


def race(database, count):
    """So many acquire at once; the names of those that got it."""
    start, won, lost = threading.Barrier(count), [], []

    def acquire(name):
        mine = Store(database)
        start.wait()
        try:
            Lease(mine, "s", driver=str(name)).acquire()
            won.append(name)
        except Busy:
            lost.append(name)
        mine.close()

    threads = [threading.Thread(target=acquire, args=(name,)) for name in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) + len(lost) == count
    return won


@pytest.mark.parametrize("before", ["nobody", "a dead driver"])
def test_of_many_that_acquire_at_once_one_wins(database, store, before):
    for _ in range(5):
        with store.writing() as connection:
            connection.execute(LEASES.delete())
        if before == "a dead driver":
            Lease(store, "s").acquire()
            change(store, host="elsewhere", renewed=1.0)
        [winner] = race(database, 5)
        assert row(store).driver == str(winner)


def test_a_slow_acquirer_does_not_remove_the_one_that_came_first(store, database, monkeypatch):
    """Both saw the dead driver; on Postgres the second deletes after the first has committed."""
    if store.url.startswith("sqlite"):
        pytest.skip("SQLite lets only one in at a time")
    Lease(store, "s").acquire()
    change(store, host="elsewhere", renewed=1.0)
    lives, other = leases._lives, Store(database)

    def slowly(row):
        monkeypatch.setattr(leases, "_lives", lives)
        Lease(other, "s", driver="first").acquire()
        return lives(row)

    monkeypatch.setattr(leases, "_lives", slowly)
    with pytest.raises(Busy):
        Lease(store, "s", driver="second").acquire()
    assert row(store).driver == "first"
    other.close()


class Broken(Store):
    """A store that does not take what is written while it is out."""

    out = False

    @contextmanager
    def writing(self):
        if self.out:
            raise StoreError("journal: disk I/O error")
        with super().writing() as connection:
            yield connection


@pytest.fixture
def broken(database, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_S", 0.02)
    store = Broken(database)
    yield store
    store.close()


def wait_for(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lease_that_a_store_did_not_take_for_a_while_is_renewed_and_that_is_told(broken, caplog):
    lease = Lease(broken, "s")
    lease.acquire()
    with lease.kept():
        broken.out = True
        wait_for(lambda: len(caplog.messages) > 1)
        change(broken_free := Store(broken.url), renewed=0.0)
        broken.out = False
        wait_for(lambda: row(broken).renewed > 0.0)
        broken_free.close()
    assert "s: its lease was not renewed for" in caplog.messages[0]
    assert "disk I/O error" in caplog.messages[0]


def test_a_lease_that_ran_out_ends_its_driver_as_one_that_was_lost(broken, monkeypatch):
    monkeypatch.setattr(leases, "EXPIRY_S", 0.1)
    lease = Lease(broken, "s")
    lease.acquire()
    broken.out = True
    with pytest.raises(Busy, match=r"its lease has run out.*disk I/O error"), lease.kept():
        wait_for(lambda: not [one for one in threading.enumerate() if one.name == "lease"])


def test_a_driver_that_starts_a_cluster_keeps_its_sweep_meanwhile(store, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    lease = Lease(store, "s")
    lease.acquire()
    change(store, renewed=0.0)
    deadline = time.monotonic() + 20
    with lease.kept():
        while row(store).renewed == 0.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]
