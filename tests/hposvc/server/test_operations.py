import threading

import pytest

from hposvc import api
from hposvc.errors import Busy
from hposvc.journal import operations as recorded
from hposvc.journal.tokens import SCOPES
from hposvc.server.operations import THREADS, Operations
from hposvc.server.principal import Principal

ANN = Principal("ann", frozenset(SCOPES))


@pytest.fixture
def operations(tmp_path):
    started = Operations(api.Sweeps.open(tmp_path))
    with started.running():
        yield started


def test_quick_work_that_fails_raises_and_is_on_record(operations):
    def refuse():
        raise Busy("s-1: a driver is at work on it")

    with pytest.raises(Busy):
        operations.run(ANN, "rm", "s-1", refuse)
    (failed,) = operations.newest("s-1")
    assert (failed.state, failed.errors[0]["code"]) == ("failed", "busy")


def test_long_work_goes_on_behind_the_answer(operations, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr("hposvc.server.operations.PATIENCE_S", 0)
    running = operations.run(ANN, "rm", "s-1", lambda: {"went": go.wait(30)})
    assert running.state == "running"
    with operations.running():  # a second server of this process leaves it alone
        assert operations.find(running.id).state == "running"
        go.set()
    assert operations.find(running.id).result == {"went": True}


def test_work_that_is_awaited_finds_a_thread_though_all_others_are_busy(operations, monkeypatch):
    go = threading.Event()
    monkeypatch.setattr("hposvc.server.operations.PATIENCE_S", 0)
    for _ in range(THREADS):
        operations.run(ANN, "stop", "s-1", lambda: {"went": go.wait(30)})
    operations.run_here(ANN, "token create", None, lambda: {"id": "7"})
    assert operations.newest(None)[0].result == {"id": "7"}
    go.set()


def test_what_a_dead_server_left_fails_at_the_start(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    with sweeps.journal.store.writing() as connection:
        name = recorded.begin(connection, "rm", "s-1", None, "ann", "elsewhere boot 1 2.0")
    with Operations(sweeps).running():
        assert recorded.find(sweeps.journal.store, name).state == "failed"
