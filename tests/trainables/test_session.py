"""`report` in a process outside any sweep, and in one whose reports somebody takes."""

from pathlib import Path

import pytest

from trainables import session
from trainables.session import get_checkpoint, is_in_sweep, report, use


class Receiver:
    def __init__(self):
        self.reports = []

    def report(self, metrics, step, checkpoint):
        self.reports.append((dict(metrics), step, checkpoint))

    def get_checkpoint(self):
        return Path("/restore")


def test_reports_go_to_the_session_of_the_innermost_block():
    outer, inner = Receiver(), Receiver()
    with use(outer):
        report({"loss": 1.0})
        with use(inner):
            report({"loss": 2.0}, step=3, checkpoint="/folder")
        report({"loss": 3.0})
        assert get_checkpoint() == Path("/restore")
    assert outer.reports == [({"loss": 1.0}, None, None), ({"loss": 3.0}, None, None)]
    assert inner.reports == [({"loss": 2.0}, 3, Path("/folder"))]


def test_a_process_knows_whether_its_reports_are_recorded():
    assert not is_in_sweep()
    with use(Receiver()):
        assert is_in_sweep()


def test_a_block_that_breaks_off_gives_the_session_back():
    before = session._session
    with pytest.raises(KeyError), use(Receiver()):
        raise KeyError
    assert session._session is before


def test_outside_a_sweep_a_report_is_printed_and_there_is_no_checkpoint(monkeypatch, capsys):
    monkeypatch.setattr(session, "_session", None)
    for name in (session.LINE, session.RESTORE):
        monkeypatch.delenv(name, raising=False)
    report({"loss": 0.5})
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loss" in captured.err
    assert get_checkpoint() is None


def test_the_end_of_a_script_leaves_no_traceback():
    with pytest.raises(SystemExit) as left:
        raise session.ScriptStopped("rung")
    assert (left.value.code, left.value.reason) == (0, "rung")
