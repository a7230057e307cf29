"""The feed has every event once, whichever transaction ends first, and whoever reads when."""

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_spec
from waiting import until

from hposvc import spec as specs
from hposvc.events import Finished, RetryDue
from hposvc.journal import feed
from hposvc.journal.database import Store
from hposvc.journal.feed import BEGIN
from hposvc.journal.journal import Journal, SweepRow

SPEC = specs.dump(make_spec())


@pytest.fixture
def journal(database):
    return Journal(Store(database))


def create(journal, *sweeps):
    for sweep in sweeps:
        assert journal.create(SweepRow(sweep, "name", "project", 1.0, SPEC, {}))


def write(journal, sweep, count=1):
    last = journal.last(sweep)
    return journal.append(sweep, last, [RetryDue(0.0, f"t{last}") for _ in range(count)])


def read(journal, position, limit=100):
    """Return the (sweep, number) of all events behind a position, and the position then."""
    numbers = []
    while rows := feed.read(journal.store, position, limit):
        for row in rows:
            begun = position.seq if position[:2] == row[:2] else row.since
            numbers += [(row.sweep, seq) for seq in range(begun + 1, row.seq + 1)]
            position = row.end
    return numbers, position


def test_the_feed_has_every_event_in_the_order_written(journal):
    create(journal, "a", "b")
    write(journal, "a", 2)
    write(journal, "b")
    write(journal, "a")
    numbers, position = read(journal, BEGIN, limit=1)
    assert numbers == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]
    assert feed.end(journal.store) == position
    assert read(journal, position) == ([], position)
    write(journal, "b")
    assert read(journal, position)[0] == [("b", 2)]


def test_a_deleted_sweep_leaves_nothing_and_its_numbers_are_not_given_again(journal):
    create(journal, "a", "b")
    write(journal, "b")
    write(journal, "a")
    _, position = read(journal, BEGIN)
    journal.remove("a")
    create(journal, "a")
    write(journal, "a", 2)
    assert read(journal, position)[0] == [("a", 1), ("a", 2)]
    assert read(journal, BEGIN)[0] == [("b", 1), ("a", 1), ("a", 2)]


def test_packed_events_are_read_as_they_were(journal):
    create(journal, "a")
    write(journal, "a", 4)
    journal.append("a", 4, [Finished(1.0, "COMPLETED", "trials")])
    before = list(journal.rows("a"))
    journal.replace("a", journal.pack("a"))
    assert list(journal.rows("a")) == before
    assert list(journal.rows("a", 2, 2)) == before[2:4]
    assert read(journal, BEGIN)[0] == [("a", seq) for seq in range(1, 6)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("abc")),
        st.tuples(st.just("end"), st.sampled_from("abc")),
        st.tuples(st.just("read"), st.integers(1, 3)),
    ),
    max_size=40,
)


class Writers:
    """Writers of a sweep each, with a transaction at a time that stays open."""

    def __init__(self, journal):
        self.journal, self.written, self.open = journal, Counter(), {}

    def begin(self, sweep):
        if sweep not in self.open:
            self.open[sweep] = stack = ExitStack()
            connection = stack.enter_context(self.journal.store.writing())
            feed.announce(connection, sweep, self.written[sweep], self.written[sweep] + 1)
            self.written[sweep] += 1

    def end(self, sweep):
        if sweep in self.open:
            self.open.pop(sweep).close()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_whichever_transactions_overlap_a_reader_gets_each_event_once(journal, steps):
    for sweep in "abc":
        journal.create(SweepRow(sweep, "name", "project", 1.0, SPEC, {}))
    position, got, writers = feed.end(journal.store), [], Writers(journal)
    for kind, which in steps:
        if kind == "read":
            rows = feed.read(journal.store, position, which)
            got += [(row.sweep, row.seq) for row in rows]
            position = rows[-1].end if rows else position
        else:
            getattr(writers, kind)(which)
    for sweep in "abc":
        writers.end(sweep)

    def all_read():
        nonlocal position
        rows, position = read(journal, position)
        got.extend(rows)
        return len(got) >= writers.written.total()

    until(all_read, "the last events")  # transactions of other databases hold them back
    for sweep in "abc":  # all of them, once, in order
        numbers = [seq for name, seq in got if name == sweep]
        assert numbers == [*range(1, writers.written[sweep] + 1)]
