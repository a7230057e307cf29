"""Histories in memory: new events are applied, memory is bounded."""

import asyncio

import pytest
import recorded_home
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.analysis.findings import why
from hposvc.events import Finished, Reported
from hposvc.journal.follow import OWN_EVENTS
from hposvc.server.pages import histories as histories_module
from hposvc.server.pages.histories import Histories


@pytest.fixture
def begun(sweeps):
    recorded_home.cut_off(sweeps, "s")
    return sweeps


def look(histories, sweeps, sweep="s"):
    with histories.open(sweeps.journal.find(sweep)) as read:
        return read.history, read.seq


def test_findings_and_the_answers_of_models_are_as_of_one_event(begun, monkeypatch):
    histories, row = Histories(begun), begun.journal.find("s")
    seq = begun.journal.last("s")

    def explain(*given):
        begun.journal.append("s", seq, [Reported(9.0, 1, "t0001", 2, {"loss": 0.25})])
        look(histories, begun)  # as another request does while models are fitted
        return []

    monkeypatch.setattr(histories_module, "explained", explain)
    first = asyncio.run(histories.fit(row))
    as_it_was = api.follow_row(begun, row).read_to(seq)
    assert (first.seq, first.findings) == (seq, why("s", as_it_was, []))
    assert asyncio.run(histories.fit(row)) is first
    begun.journal.append("s", seq + 1, [Finished(99.0, "STOPPED", "user")])
    monkeypatch.undo()
    assert asyncio.run(histories.fit(row)).seq == seq + 2


def test_the_histories_read_longest_ago_are_forgotten(begun):
    api.create(begun, make_spec(), "other")
    histories = Histories(begun, most_events=2 * OWN_EVENTS)
    fitted = asyncio.run(histories.fit(begun.journal.find("s")))
    first, _ = look(histories, begun)
    look(histories, begun, "other")
    assert look(histories, begun)[0] is not first
    assert asyncio.run(histories.fit(begun.journal.find("s"))) is fitted


def test_models_are_asked_at_most_once_a_minute_while_the_sweep_runs(begun, monkeypatch):
    asked = []
    monkeypatch.setattr(histories_module, "explained", lambda *given: asked.append(given) or [])
    monkeypatch.setattr(histories_module, "REST", 0)  # however long the other charts take
    histories, row = Histories(begun), begun.journal.find("s")

    def draw(event=None):
        if event is not None:
            begun.journal.append("s", begun.journal.last("s"), [event])
        asyncio.run(histories.fit(row))
        with histories.open(row) as read:
            return read.draw("importance").seq, read.draw("curves").seq

    first = draw()
    assert draw(Reported(9.0, 1, "t0001", 3, {"loss": 0.25})) == (first[0], first[1] + 1)
    assert len(asked) == 1
    assert draw(Finished(10.0, "STOPPED", "stopped"))[0] == begun.journal.last("s")
    assert len(asked) == 2
