"""The report that a sweep writes when it ends."""

import io

from simulated_sweeps import Lab, make_spec
from waiting import until

from hposvc import api
from hposvc.journal.home import REPORT
from hposvc.tracking.recorder_process import SWITCH
from hposvc.views import result
from hposvc.views.console import console

NOWHERE = {"send_to": ["json_lines"]}  # without MLflow, which takes seconds


def record(sweeps, ended=True, **sections):
    """Record a sweep, without its recorder."""
    spec = make_spec(trials={"max": 3, "parallel": 1}, tracking=NOWHERE, **sections)
    row = api.create(sweeps, spec, "it")
    if ended:
        Lab(sweeps.journal, sweeps.home.path / "lab").run(spec, "it")
    return row


def test_an_ended_sweep_has_its_report_soon_and_run_says_where(sweeps, monkeypatch):
    monkeypatch.setenv(SWITCH, "")
    row = record(sweeps)
    ended = api.drive(sweeps, row)
    file = sweeps.home.folder("it", None) / REPORT
    assert ended.report_begun
    out = io.StringIO()
    console(out).print(*result.summary(ended, sweeps.home), sep="\n")
    assert f"{file}\n" in out.getvalue()
    assert "hposvc report it does it again" in out.getvalue()
    until(file.exists)
    assert file.read_text().rstrip().endswith("</html>")
    assert "How to reproduce it" in file.read_text()
    assert not api.load(sweeps, "it").report_begun


def test_a_report_that_fails_leaves_its_reason(sweeps, monkeypatch):
    monkeypatch.setenv(SWITCH, "")
    row = record(sweeps)
    folder = sweeps.home.folder("it", None)
    (folder / REPORT).mkdir(parents=True)
    assert api.drive(sweeps, row).state.state == "COMPLETED"
    until(lambda: "can't be written" in (folder / "logs" / "recorder.log").read_text())
