"""Packed journals. If these tests fail, the record of an ended sweep has changed."""

import signal
import subprocess
import sys
from functools import partial

import command_line
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_sweeps import CALLS, Lab, make_spec
from sqlalchemy import select, update

from hposvc import spec as specs
from hposvc.errors import Fenced, StoreError
from hposvc.events import Ended, Finished, Reported, Requested, UnknownEvent, from_json
from hposvc.journal import compression
from hposvc.journal.compression import Damaged, EventRow, pack
from hposvc.journal.database import EVENTS, Store
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow

OVER = Finished(9.0, "COMPLETED", "trials")
KILLED = """
import os, signal, sys
from hposvc.journal import journal
from hposvc.journal.database import Store
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
journal.insert = die  # the events are deleted by then, and the packs are not there yet
opened = journal.Journal(Store(sys.argv[1]))
opened.replace("s", opened.pack("s"))
"""


@pytest.fixture
def journal(database, monkeypatch):
    monkeypatch.setattr(compression, "MAX_EVENTS", 3)
    journal = Journal(Store(database))
    yield journal
    journal.store.close()


def ended(count):
    return [Ended(float(number), number, "t0001") for number in range(count)]


def rows(journal, sweep="s"):
    query = select(EVENTS.c.kind).where(EVENTS.c.sweep == sweep).order_by(EVENTS.c.seq)
    with journal.store.reading() as connection:
        return list(connection.execute(query).scalars())


def shrink(journal, sweep="s"):
    journal.replace(sweep, journal.pack(sweep))


metrics = st.dictionaries(st.text(max_size=10), st.floats(), max_size=4)
times = st.floats(allow_nan=False)
turns = st.lists(
    st.lists(
        st.builds(Reported, times, st.integers(), st.text(max_size=20), st.integers(), metrics)
    ),
    min_size=1,
    max_size=3,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(turns, st.booleans())
def test_what_is_packed_is_read_as_it_was_from_every_number_on(journal, turns, again):
    """A sweep may be packed, extended, and packed again."""
    sweep = f"s{len(journal.sweeps())}"
    journal.create(SweepRow(sweep, "s", "p", 0.0, {}, {}))
    for number, turn in enumerate(turns):
        before = journal.last(sweep)
        journal.append(sweep, before, [*turn, Ended(1.0, 1, "t0001"), OVER])
        if again or number == 0:
            written = list(journal.read(sweep))
            shrink(journal, sweep)
            assert repr(list(journal.read(sweep))) == repr(written)
    written = list(journal.read(sweep))
    assert journal.last(sweep) == len(written) == written[-1][0]
    for after in range(len(written) + 1):
        assert repr(list(journal.read(sweep, after))) == repr(written[after:])


def test_only_what_has_ended_is_packed_and_once(journal):
    journal.append("s", 0, ended(4))
    assert journal.pack("s") is None
    journal.append("s", 4, [OVER])
    shrink(journal)
    assert journal.pack("s") is None
    journal.append("s", 5, [Requested(9.0, "extend", None, {"trials.max": 9})])
    assert journal.pack("s") is None
    assert rows(journal) == ["packed", "packed", "requested"]


@pytest.mark.parametrize("after", range(5))
def test_a_driver_that_was_replaced_can_not_write_into_a_packed_sweep(journal, after):
    journal.append("s", 0, [*ended(4), OVER])
    shrink(journal)
    written = repr(list(journal.read("s")))
    with pytest.raises(Fenced, match="another driver wrote"):
        journal.append("s", after, ended(1))
    assert repr(list(journal.read("s"))) == written
    assert journal.append("s", 5, ended(1)) == 6


def test_events_that_came_meanwhile_are_kept(journal):
    journal.append("s", 0, [*ended(4), OVER])
    packs = journal.pack("s")
    journal.append("s", 5, ended(1))
    with pytest.raises(Fenced):
        journal.replace("s", packs)
    assert len(rows(journal)) == 6


def test_a_process_killed_amid_packing_leaves_all_as_it_was(journal, database):
    journal.append("s", 0, [*ended(6), OVER])
    written = repr(list(journal.read("s")))
    died = subprocess.run([sys.executable, "-c", KILLED, database], check=False)
    assert died.returncode == -signal.SIGKILL
    assert repr(list(journal.read("s"))) == written
    assert len(rows(journal)) == 7
    shrink(journal)
    assert repr(list(journal.read("s"))) == written


@pytest.mark.parametrize("body", ["", "abc", "0 c", "{} x"])
def test_a_damaged_pack_is_said_and_never_read_as_less(journal, body):
    journal.append("s", 0, [*ended(2), OVER])
    shrink(journal)
    with journal.store.writing() as connection:
        connection.execute(update(EVENTS).values(body=body))
    with pytest.raises(StoreError, match="s: the events up to number 3 are damaged"):
        list(journal.read("s"))


@pytest.mark.parametrize(
    "rows",
    [
        [EventRow(1, "ended", 1.0, "{}"), EventRow(3, "ended", 1.0, "{}")],
        [EventRow(1, "ended", 1.0, '{"a":\n1}')],
        [EventRow(1, "ended", float("nan"), "{}")],
    ],
)
def test_what_would_not_come_back_is_not_packed(rows):
    with pytest.raises(Damaged, match="without a loss"):
        pack(rows)


def test_a_version_that_knows_no_packs_takes_no_packed_sweep_for_an_empty_one():
    row = pack([EventRow(1, "ended", 1.0, "{}")]).rows[0]
    with pytest.raises(UnknownEvent, match="install the one that wrote this journal"):
        from_json(row.kind, row.time, row.body)


def test_gc_packs_what_has_ended_and_all_of_it_reads_as_before(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    CALLS.clear()
    journal = Home.of(tmp_path / "home").journal()
    spec = make_spec(trials={"max": 40, "parallel": 4})
    for name in ("one", "two"):
        journal.create(SweepRow(name, name, "p", 1.0, specs.dump(spec), {}))
        Lab(journal, tmp_path).run(spec, name)
    journal.append("two", journal.last("two"), ended(1))  # a driver is at work on it again
    written = list(journal.read("one"))
    file = tmp_path / "home" / "hposvc.db"
    tables = Home.of(tmp_path / "empty").journal().store
    tables.vacuum()
    empty = (tmp_path / "empty" / "hposvc.db").stat().st_size
    journal.store.vacuum()
    before = file.stat().st_size

    gc = partial(command_line.run, capfd, "--home", tmp_path / "home", "gc", "--compact")
    code, out, _ = gc("--dry-run", "one")
    assert code == 0
    assert f"{len(written)} events of a sweep that has ended: packed" in out
    assert rows(journal, "one") != ["packed"]
    assert gc("one").code == 0
    assert rows(journal, "one") == ["packed"]
    assert list(journal.read("one")) == written
    assert file.stat().st_size - empty < 0.7 * (before - empty)
    assert [*gc("one")][:2] == [0, "nothing to free\n"]
