"""Leases: a living driver keeps its sweep, and a dead driver is replaced."""

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
from waiting import until

from hposvc.errors import Busy, StoreError
from hposvc.journal import lease as leases
from hposvc.journal.database import LEASES, Store
from hposvc.journal.lease import EXPIRY_S, Lease, driver_state, process_start
from hposvc.journal.lease import holder as holder_of_sweep

HOLDER = """
import sys
from hposvc.journal.lease import Lease
from hposvc.journal.database import Store
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
    """Yield another process that holds the sweep's lease."""
    command = [sys.executable, "-c", HOLDER, database]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def change(store, **values):
    with store.writing() as connection:
        connection.execute(update(LEASES).values(**values))


def row(store):
    with store.reading() as connection:
        return connection.execute(select(LEASES)).one_or_none()


def test_a_verb_that_holds_a_sweep_for_a_moment_is_no_driver_by_name(store):
    collecting = Lease(store, "s", "gc")
    collecting.acquire()
    assert holder_of_sweep(store, "s").work == "gc"
    with pytest.raises(Busy, match=rf"`gc` is at work on it \(process {os.getpid()} .*try again"):
        Lease(store, "s").acquire()
    collecting.release()
    Lease(store, "s").acquire()
    assert holder_of_sweep(store, "s").work == ""


def test_a_living_driver_keeps_its_sweep(store, holder):
    assert driver_state(store, "s") == "alive"
    with pytest.raises(Busy, match=rf"process {holder.pid} on .*hposvc stop s"):
        Lease(store, "s").acquire()
    Lease(store, "other").acquire()


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
    """After a container's restart the driver often has the same process id as before."""
    Lease(store, "s").acquire()
    change(store, pid=pid, started=process_start(pid) - 60)
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
    """The lease looks expired, but the driver renews it while another driver watches."""
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


@pytest.mark.parametrize("machine", ["", "another-boot pid:[1]"], ids=["none", "other"])
def test_a_process_id_of_another_process_table_says_nothing(store, machine):
    """Two containers may share a host name."""
    Lease(store, "s").acquire()
    change(store, machine=machine, pid=2**22 + 1)
    assert driver_state(store, "s") == "alive"
    with pytest.raises(Busy):
        Lease(store, "s").acquire()
    change(store, renewed=time.time() - EXPIRY_S - 1)
    assert driver_state(store, "s") == "dead"
    Lease(store, "s").acquire()


def test_a_living_driver_in_another_container_keeps_its_sweep(database, store):
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a process table")
    command = [*apart, sys.executable, "-c", HOLDER, database]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        assert (row(store).host, row(store).pid) == (socket.gethostname(), 1)
        assert driver_state(store, "s") == "alive"
        with pytest.raises(Busy):
            Lease(store, "s").acquire()
        process.kill()


def test_a_machine_is_told_by_its_boot_and_its_table_of_processes(tmp_path):
    def proc(name, boot, table):
        (tmp_path / name / "sys/kernel/random").mkdir(parents=True)
        (tmp_path / name / "self/ns").mkdir(parents=True)
        (tmp_path / name / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
        (tmp_path / name / "self/ns/pid").symlink_to(f"pid:[{table}]")
        return leases.machine_id(tmp_path / name)

    assert proc("one", "b1", 7) == proc("again", "b1", 7) == "b1 pid:[7]"
    assert len({proc("x", "b1", 7), proc("y", "b1", 8), proc("z", "b2", 7)}) == 3
    assert leases.machine_id(tmp_path / "nowhere") == ""


def test_setting_the_clock_kills_no_driver(store, holder, monkeypatch):
    """psutil derives the start of a process from the wall clock."""
    jumped = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: jumped(self) + 3600)
    monkeypatch.setattr(time, "time", lambda: 12.0)
    assert driver_state(store, "s") == "alive"


def test_a_driver_that_was_replaced_neither_renews_nor_releases_the_other_s_lease(store):
    old, new = Lease(store, "s"), Lease(store, "s")
    old.acquire()
    change(store, host="elsewhere", renewed=1.0)
    new.acquire()
    old.renewed = 0.0
    seen = row(store)
    with pytest.raises(Busy, match="a driver is at work on it"):
        old.renew()
    old.release()
    assert row(store) == seen


def race(database, count):
    """Let `count` drivers acquire the lease at once, and return the names of the winners."""
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


class Broken(Store):
    """A store that refuses writes while `out` is set."""

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


def test_a_lease_that_a_store_did_not_take_for_a_while_is_renewed_and_that_is_told(broken, caplog):
    lease = Lease(broken, "s")
    lease.acquire()
    with lease.renewed_in_background():
        broken.out = True
        until(lambda: len(caplog.messages) > 1)
        change(broken_free := Store(broken.url), renewed=0.0)
        broken.out = False
        until(lambda: row(broken).renewed > 0.0)
        broken_free.close()
    assert "s: its lease was not renewed for" in caplog.messages[0]
    assert "disk I/O error" in caplog.messages[0]


def test_a_lease_that_ran_out_is_held_again_where_nobody_took_it(broken, monkeypatch, caplog):
    monkeypatch.setattr(leases, "EXPIRY_S", 0.05)
    lease = Lease(broken, "s")
    lease.acquire()
    broken.out = True
    with lease.renewed_in_background():
        until(lambda: len(caplog.messages) > 5)
        broken.out = False
        lease.renewed = 0.0
        until(lambda: lease.renewed > 0.0)
        lease.check()


@pytest.mark.parametrize("thread", [True, False], ids=["told by its thread", "late"])
def test_a_lease_that_another_took_while_the_store_was_away_is_lost(broken, monkeypatch, thread):
    """A driver cut off from the store checks its lease before it writes again."""
    monkeypatch.setattr(leases, "RENEW_S", 0.02 if thread else 3600)
    lease, other = Lease(broken, "s"), Store(broken.url)
    lease.acquire()
    broken.out = True
    change(other, host="elsewhere", renewed=1.0)
    Lease(other, "s").acquire()
    if not thread:
        lease.renewed -= 7200

    def find_out():
        if thread:
            broken.out = False
            until(lambda: not [alive for alive in threading.enumerate() if alive.name == "lease"])
        broken.out = False
        lease.check()

    with pytest.raises(Busy, match="a driver is at work on it"), lease.renewed_in_background():
        find_out()
    other.close()


def test_a_lease_that_was_taken_without_an_answer_can_be_taken_again(store):
    lease = Lease(store, "s")
    lease.acquire()
    seen = row(store)
    lease.acquire()
    assert row(store) == seen


def test_a_driver_that_starts_a_cluster_keeps_its_sweep_meanwhile(store, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    lease = Lease(store, "s")
    lease.acquire()
    change(store, renewed=0.0)
    with lease.renewed_in_background():
        until(lambda: row(store).renewed)
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]
