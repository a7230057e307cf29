"""Sinks of users. If these fail, a fault of one is laid at the door of hposvc, or ends a sweep."""

import os
import re
from contextlib import closing

import pytest
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.journal.home import RECORDER
from hposvc.remote import archive
from hposvc.spec.sinks import SINKS, sink_key, sink_type
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.sink import Sink, SinkSetting, recorder_lock

OWN = "/home/me/my sinks/mine.py:A_sink_with_quite_a_long_name"


class Listing(Sink):
    """Keeps what it is sent, once it has been mended."""

    broken = True

    def __init__(self, setting):
        self.sent = []

    def send(self, batches):
        if self.broken:
            raise ConnectionError("nobody there")
        self.sent += [batch.seq for batch in batches]


@pytest.fixture
def gone():
    """Return the reading end of a pipe whose driver is gone."""
    reading, writing = os.pipe()
    os.close(writing)
    with closing(os.fdopen(reading)) as end:
        yield end.fileno()


def test_the_key_of_a_sink_suits_the_journal_and_the_names_of_files(tmp_path):
    assert [sink_key(name) for name in SINKS] == [*SINKS]
    assert re.fullmatch(r"\w{1,40}", sink_key(OWN))
    assert sink_key(OWN) != sink_key(OWN.replace("my sinks", "my_sinks"))
    assert RECORDER.fullmatch(recorder_lock(tmp_path, sink_key(OWN)).name)
    assert (sink_type(OWN).title, sink_type(OWN).is_installed) == (OWN.rpartition("/")[2], True)


def test_the_key_of_a_sink_stays_when_its_file_travels_to_a_cluster(tmp_path):
    (tmp_path / "mine.py").write_text("from hposvc.tracking.sink import Sink as States\n")
    spec = make_spec(folder=f"{tmp_path}", tracking={"send_to": ["mine.py:States"]})
    sent = archive.pack(spec, tmp_path, []).spec
    keys = [sink_key(each.tracking.send_to[0], each.works_in) for each in (spec, sent)]
    assert spec.tracking != sent.tracking
    assert keys[0] == keys[1]


def test_a_fault_of_a_sink_is_told_with_its_line_and_nothing_is_lost(
    simulated, home, gone, caplog, monkeypatch
):
    row, journal = simulated()
    spec = specs.restore(row.spec)
    sink = Listing(SinkSetting(home, journal, row, spec))
    outbox = Outbox(row, spec, journal, lambda: sink, key=sink_key("mine.py:Listing"))
    assert not follow(outbox, gone, give_up_s=0.0)
    assert re.search(r"ConnectionError: nobody there \(.*test_own_sinks\.py:\d+\)", caplog.text)
    assert journal.cursor(row.id, outbox.key) == 0
    monkeypatch.setattr(sink, "broken", False)
    assert follow(outbox, gone)
    assert journal.cursor(row.id, outbox.key) == journal.last(row.id) >= sink.sent[-1]
    assert sink.sent == sorted({*sink.sent})


def test_a_sink_that_cannot_be_made_is_told_with_its_line_and_made_later(
    simulated, home, gone, caplog
):
    row, journal = simulated()
    setting = SinkSetting(home, journal, row, specs.restore(row.spec))
    makes = iter([lambda setting: setting.no_such, Listing])
    key = sink_key("mine.py:Listing")
    outbox = Outbox(row, setting.spec, journal, lambda: next(makes)(setting), key=key)
    assert not follow(outbox, gone, give_up_s=0.0)
    assert re.search(r"no attribute 'no_such' \(.*test_own_sinks\.py:\d+\)", caplog.text)
    outbox.sink.broken = False
    assert follow(outbox, gone)
    assert journal.cursor(row.id, key) == journal.last(row.id)


class Ending(Listing):
    """Raises at its end each time, and counts that."""

    broken = False

    def close(self, state):
        self.closed = getattr(self, "closed", 0) + 1
        assert self.closed < 4, "tried for ever"
        raise ConnectionError("no end")


def test_a_sink_that_never_ends_is_given_up_with_all_it_was_sent(simulated, home, gone, caplog):
    row, journal = simulated()
    setting = SinkSetting(home, journal, row, specs.restore(row.spec))
    outbox = Outbox(row, setting.spec, journal, lambda: Ending(setting), key="Ending")
    assert not follow(outbox, gone, give_up_s=0.5, close=outbox.close)
    assert re.search(r"ConnectionError: no end \(.*test_own_sinks\.py:\d+\)", caplog.text)
    assert "tried for ever" not in caplog.text
    assert journal.cursor(row.id, "Ending") == journal.last(row.id)
