"""The report that a sweep writes when it ends."""

from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc.journal.home import REPORT
from hposvc.tracking.recorder_process import SWITCH

NOWHERE = {"send_to": ["json_lines"]}  # without MLflow, which takes seconds


def record(sweeps, ended=True, **sections):
    """Record a sweep, without its recorder."""
    spec = make_spec(trials={"max": 3, "parallel": 1}, tracking=NOWHERE, **sections)
    row = api.create(sweeps, spec, "it")
    if ended:
        Lab(sweeps.journal, sweeps.home.path / "lab").run(spec, "it")
    return row


def test_an_ended_sweep_has_its_report_and_run_says_where(sweeps, monkeypatch):
    monkeypatch.setenv(SWITCH, "")
    row = record(sweeps)
    api.drive(sweeps, row)
    file = sweeps.home.folder("it", None) / REPORT
    assert "How to reproduce it" in file.read_text()


def test_a_report_that_fails_is_a_warning(sweeps, monkeypatch, caplog):
    monkeypatch.setenv(SWITCH, "")
    row = record(sweeps)
    (sweeps.home.folder("it", None) / REPORT).mkdir(parents=True)
    assert api.drive(sweeps, row).state.state == "COMPLETED"
    assert "no report: see recorder.log" in caplog.text
