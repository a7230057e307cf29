import pytest

from hposvc.journal import operations, submissions, supervision
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal, SweepRow


@pytest.fixture
def journal(database):
    journal = Journal(Store(database))
    yield journal
    journal.store.close()


def row(name="s-1"):
    return SweepRow(name, "s", "p", 1.0, {}, {})


def test_a_sweep_its_submission_and_its_operation_are_recorded_together(journal):
    created = submissions.create(journal, row(), "ann", "d1", "a1", "k1")
    assert submissions.find(journal.store, "s-1") == created
    assert (created.by, created.archive) == ("ann", "a1")
    assert supervision.find(journal.store, "s-1") is not None
    operation = operations.find(journal.store, created.operation)
    assert (operation.verb, operation.sweep, operation.state) == ("submit", "s-1", "running")
    assert submissions.find_by_key(journal.store, "ann", "k1") == (created, "d1")
    assert submissions.find_by_key(journal.store, "bob", "k1") is None


def test_a_taken_id_or_key_writes_nothing(journal):
    submissions.create(journal, row(), "ann", "d1", None, "k1")
    assert submissions.create(journal, row(), "bob", "d2", None, None) is None
    assert submissions.create(journal, row("s-2"), "ann", "d2", None, "k1") is None
    assert journal.find("s-2") is None
    assert len(operations.newest(journal.store)) == 1


def test_a_removed_sweep_leaves_its_operations_alone(journal):
    created = submissions.create(journal, row(), "ann", "d1", "a1", "k1")
    journal.remove("s-1")
    assert submissions.find(journal.store, "s-1") is None
    assert submissions.find_by_key(journal.store, "ann", "k1") is None
    assert submissions.archives(journal.store) == set()
    assert operations.find(journal.store, created.operation).sweep == "s-1"


def test_owners_and_archives_are_known_by_sweep(journal):
    for name, owner in (("s-1", "ann"), ("s-2", "bob")):
        submissions.create(journal, row(name), owner, "d", f"archive of {name}", None)
    assert submissions.archives(journal.store) == {"archive of s-1", "archive of s-2"}
    assert submissions.owners(journal.store) == {"s-1": "ann", "s-2": "bob"}
    assert submissions.owners(journal.store, ["s-2"]) == {"s-2": "bob"}
