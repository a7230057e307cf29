import pytest

from hposvc.errors import NotFound
from hposvc.journal import operations
from hposvc.journal.database import Store


@pytest.fixture
def store(database):
    store = Store(database)
    yield store
    store.close()


def begin(store, sweep="s-1", server=None):
    with store.writing() as connection:
        return operations.begin(connection, "stop", sweep, "t0001", "ann", server)


def test_an_operation_runs_until_it_is_ended(store):
    name = begin(store)
    running = operations.find(store, name)
    assert (running.state, running.ended, running.result, running.errors) == (
        "running",
        None,
        None,
        [],
    )
    operations.end(store, name, {"left": ""})
    done = operations.find(store, name)
    assert (done.state, done.result) == ("done", {"left": ""})
    assert done.ended >= done.created


def test_an_operation_ends_once(store):
    name = begin(store)
    operations.end(store, name, errors=[{"code": "busy"}])
    operations.end(store, name, {"left": ""})
    assert operations.find(store, name).state == "failed"
    assert operations.find(store, name).errors == [{"code": "busy"}]


def test_operations_are_listed_newest_first_and_by_sweep(store):
    names = [begin(store, sweep) for sweep in ("a", "b", "a")]
    assert [operation.id for operation in operations.newest(store)] == names[::-1]
    assert [operation.id for operation in operations.newest(store, "a")] == [names[2], names[0]]
    assert [operation.id for operation in operations.newest(store, limit=1)] == [names[2]]


def test_an_unknown_operation_is_not_found(store):
    with pytest.raises(NotFound, match="op-1"):
        operations.find(store, "op-1")


def test_operations_of_dead_servers_fail_and_those_of_drivers_go_on(store):
    gone = operations.this_server().rpartition(" ")[0]  # the process before, with our number
    dead = [begin(store, server=f"{gone} 1.0"), begin(store, server="elsewhere boot 1 2.0")]
    alive, driver = begin(store, server=operations.this_server()), begin(store)
    operations.end_orphans(store)
    assert [operations.find(store, name).state for name in dead] == ["failed", "failed"]
    assert operations.find(store, dead[0]).errors[0]["message"] == operations.ENDED
    assert [operations.find(store, name).state for name in (alive, driver)] == ["running"] * 2
