"""The journal on SQLite and Postgres: whole transactions are durable, a sweep has one writer."""

import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from hposvc.errors import EventsLost, Fenced, StoreError
from hposvc.events import Attached, Ended, Finished, Reported, Requested
from hposvc.journal import journal as journals
from hposvc.journal.database import EVENTS, Store
from hposvc.journal.journal import Journal, SweepRow


@pytest.fixture
def journal(database):
    journal = Journal(Store(database))
    yield journal
    journal.store.close()


def ended(*numbers):
    return [Ended(float(number), number, "t0001") for number in numbers]


def events(journal, sweep, after=0):
    return [event for _, event in journal.read(sweep, after)]


metrics = st.dictionaries(st.text(max_size=10), st.floats(), max_size=4)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(st.tuples(st.text(max_size=20), metrics), max_size=4), max_size=4))
def test_events_are_read_in_order_as_they_were_written(journal, turns):
    sweep = f"s{len(journal.sweeps())}"
    journal.create(SweepRow(sweep, "s", "p", 0.0, {}, {}))
    seq, written = 0, []
    for turn in turns:
        group = [Reported(0.5, 1, trial, 3, metrics) for trial, metrics in turn]
        seq = journal.append(sweep, seq, group)
        written += group
        assert journal.last(sweep) == seq == len(written)
    read = list(journal.read(sweep))
    assert [number for number, _ in read] == list(range(1, len(written) + 1))
    assert repr([event for _, event in read]) == repr(written)
    assert repr(events(journal, sweep, after=2)) == repr(written[2:])


def test_the_second_of_two_writers_is_fenced_and_writes_nothing(journal, database):
    journal.append("s", 0, ended(1))
    other = Journal(Store(database))
    journal.append("s", 1, ended(2))
    with pytest.raises(Fenced, match="another driver wrote event 2"):
        other.append("s", 1, ended(7, 8, 9))
    with pytest.raises(Fenced):
        other.append("s", 0, ended(7, 8, 9))  # overlaps in the middle
    assert events(journal, "s") == ended(1, 2)
    other.append("s", 2, ended(3))
    assert events(journal, "s") == ended(1, 2, 3)
    other.store.close()


def test_nothing_is_written_behind_events_that_an_older_copy_lacks(journal):
    journal.append("s", 0, ended(1, 2, 3, 4))
    with journal.store.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.seq > 1))
    for behind in ([*ended(5)], []):  # also where only requests are taken
        with pytest.raises(EventsLost, match="s: the journal lost events 2 to 4"):
            journal.append("s", 4, behind, taken=[7])
    assert events(journal, "s") == ended(1)
    assert journal.append("s", 1, ended(2)) == 2


def test_a_gap_is_named_by_readers_and_by_the_journal(journal):
    journal.append("whole", 0, ended(*range(1, 9)))
    journal.append("s", 0, ended(*range(1, 9)))
    with journal.store.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.sweep == "s", EVENTS.c.seq.in_([3, 6, 7])))
    with pytest.raises(StoreError, match=r"s: the journal lost event 3 .*; put back a copy"):
        events(journal, "s")
    named = [(sweep, text.partition(" (")[0]) for sweep, text in journal.gaps()]
    assert named == [("s", "the journal lost event 3"), ("s", "the journal lost events 6 to 7")]


def test_of_many_writers_at_once_one_wins_each_number(journal, database):
    won, start = [], threading.Barrier(6)

    def write(name):
        mine = Journal(Store(database))
        start.wait()
        for turn in range(8):
            try:
                mine.append("s", 2 * turn, ended(name, name))
                won.append(name)
            except Fenced:
                pass
        mine.store.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = [event.order for event in events(journal, "s")]
    assert len(written) == 16
    assert written[::2] == written[1::2]  # each transaction is whole
    assert sorted(written[::2]) == sorted(won)


WRITER = """
import sys
from hposvc.events import Ended
from hposvc.journal.journal import Journal
from hposvc.journal.database import Store
journal = Journal(Store(sys.argv[1]))
seq = 0
while True:
    seq = journal.append("s", seq, [Ended(0.0, seq, "t0001")] * 7)
    print(seq, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_transactions(journal, database):
    for sweep in range(3):
        command = [sys.executable, "-c", WRITER.replace('"s"', f'"s{sweep}"'), database]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(10 + sweep):
                printed = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split()
        printed = int(rest[-1]) if rest and rest[-1].isdigit() else printed
        last = journal.last(f"s{sweep}")
        assert last % 7 == 0
        assert last >= printed - 7  # the last line may be cut off
        assert [number for number, _ in journal.read(f"s{sweep}")] == list(range(1, last + 1))
        assert journal.append(f"s{sweep}", last, ended(1)) == last + 1


def test_readers_see_whole_transactions_while_one_writes(journal, database):
    done = threading.Event()
    seen = []

    def read():
        mine = Journal(Store(database))
        while not done.is_set():
            seen.append(len(events(mine, "s")))
        mine.store.close()

    reader = threading.Thread(target=read)
    reader.start()
    seq = 0
    for _ in range(60):
        seq = journal.append("s", seq, ended(*range(5)))
    done.set()
    reader.join()
    assert all(count % 5 == 0 for count in seen)
    assert all(early <= late for early, late in pairwise(seen))


def test_an_id_is_given_once(journal):
    row = SweepRow("a-1", "a", "p", 5.0, {"name": "a", "seed": 1}, {"sha256": "x"})
    assert journal.create(row)
    assert not journal.create(row)
    assert journal.find("a-1") == row
    assert journal.find("a") is None
    journal.create(SweepRow("b-1", "b", "p", 7.0, {}, {}))
    assert [sweep.id for sweep in journal.sweeps()] == ["b-1", "a-1"]


def test_requests_are_taken_once_and_those_that_came_meanwhile_stay(journal):
    journal.request("s", "stop", "t0001")
    journal.request("other", "kill", None)
    [(number, request)] = journal.requests("s")
    assert isinstance(request, Requested)
    assert (request.verb, request.trial) == ("stop", "t0001")
    journal.request("s", "kill", None)
    journal.append("s", journal.last("s"), [], [number])
    [(_, left)] = journal.requests("s")
    assert (left.verb, left.trial) == ("kill", None)
    assert len(journal.requests("other")) == 1


def test_runs_and_cursors_are_kept_beside_the_events(journal):
    assert journal.runs("s") == {}
    assert journal.cursor("s", "mlflow") == 0
    journal.record_runs("s", {"": "parent", "t0001": "one"})
    journal.record_runs("s", {"t0001": "two"})
    journal.record_runs("s", {})
    assert journal.runs("s") == {"": "parent", "t0001": "two"}
    assert journal.run("s", "t0001") == "two"
    assert journal.run("s", "t0002") is None
    journal.advance("s", "mlflow", 0, 5)
    journal.advance("s", "mlflow", 5, 9)
    with pytest.raises(Fenced, match="up to 9, not 5"):
        journal.advance("s", "mlflow", 5, 7)  # a recorder that another one has overtaken
    assert (journal.cursor("s", "mlflow"), journal.cursor("other", "mlflow")) == (9, 0)


def test_each_sink_has_a_cursor_of_its_own(journal):
    journal.advance("s", "mlflow", 0, 5)
    journal.advance("s", "json_lines", 0, 7)
    journal.rewind("s", "mlflow", 2)
    journal.record_registered("s", "mlflow", "version 1")
    assert [journal.cursor("s", sink) for sink in ("mlflow", "json_lines", "other")] == [2, 7, 0]
    assert (journal.registered("s"), journal.registered("other")) == ("version 1", "")


def test_an_append_that_was_carried_out_without_an_answer_can_be_made_again(journal):
    journal.request("s", "stop")
    [(asked, _)] = journal.requests("s")
    turn = [Attached(1.5, "here:1"), *ended(1)]
    assert journal.append("s", 0, turn, [asked]) == 2
    assert journal.append("s", 0, turn, [asked]) == 2
    assert events(journal, "s") == turn
    journal.append("s", 2, ended(2))
    with pytest.raises(Fenced):
        journal.append("s", 0, turn)  # somebody went on behind it
    with pytest.raises(Fenced):
        journal.append("s", 2, [Attached(1.5, "there:1")])


def test_a_long_journal_is_read_in_pages_also_while_it_is_packed(journal, monkeypatch):
    monkeypatch.setattr(journals, "PAGE", 3)
    numbers = list(range(1, 12))
    journal.append("s", 0, [*ended(*numbers[:-1]), Finished(0.0, "COMPLETED", "")])
    assert [number for number, _ in journal.read("s")] == numbers
    assert [number for number, _ in journal.read("s", after=4)] == numbers[4:]
    reading = journal.read("s")
    first = [next(reading)[0] for _ in range(2)]
    journal.replace("s", journal.pack("s"))
    assert [*first, *(number for number, _ in reading)] == numbers


def test_an_unfinished_read_holds_nothing_up(journal):
    journal.append("s", 0, ended(1, 2, 3))
    reading = journal.read("s")
    next(reading)
    assert journal.append("s", 3, [Attached(0.0, "here:1")]) == 4
    assert [number for number, _ in reading] == [2, 3]
