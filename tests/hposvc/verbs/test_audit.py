"""`hposvc audit`: its output and exit codes."""

import io
import json

import pytest
from rich.console import Console
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc.analysis.audit import Line
from hposvc.verbs.audit import timeline

GIVEN = {"scheduler": "asha", "trials": {"max": 5, "parallel": 2}, "tracking": {"send_to": []}}


@pytest.fixture
def sweeps(hposvc, tmp_path):
    """Open a home with an ended sweep called `five`."""
    opened = api.Sweeps.open(tmp_path / "home")
    api.create(opened, make_spec(**GIVEN), "five")
    Lab(opened.journal, tmp_path / "lab").run(make_spec(**GIVEN), "five")
    return opened


def test_an_audit_says_why_in_words_and_in_data(hposvc, sweeps):
    code, out, _ = hposvc("audit", "five", "t0001", "-o", "json")
    lines = json.loads(out)
    assert code == 0
    assert all(line.keys() == {"time", "step", "what", "why", "detail"} for line in lines)
    assert (lines[0]["what"], lines[-1]["what"]) == ("proposed", "ended")
    code, out, _ = hposvc("audit", "five", "t0001")
    assert code == 0
    assert lines[0]["why"] in out
    assert lines[-1]["why"] in out
    code, out, _ = hposvc("audit", "five", "-o", "json")
    assert [line["what"] for line in json.loads(out)] == ["driven", "closed", "finished"]


def test_no_such_trial_is_no_bug(hposvc, sweeps):
    code, out, err = hposvc("audit", "five", "t0099")
    assert (code, out) == (4, "")
    assert "five has no trial t0099; `hposvc trials five` lists them" in err
    assert hposvc("audit", "nobody", "t0001").code == 4


def drawn(table):
    console = Console(file=io.StringIO(), width=100, markup=False, highlight=False)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def saved(what, step):
    return Line(1012.0, step, what, f"checkpoint of step {step}", {"of_step": step})


def test_a_long_reason_goes_on_below_itself():
    rows = drawn(timeline([Line(0.0, 1, "failed", "word " * 60)], "step"))[2:]
    assert len(rows) > 3
    assert all(len(row) <= 100 for row in rows)
    assert {row.index("word") for row in rows} == {rows[0].index("word")}


def test_checkpoints_with_nothing_between_share_a_line():
    lines = [saved("saved", 1), saved("saved", 2), saved("removed", 1), saved("saved", 3)]
    lines += [Line(1013.0, 3, "ended", "COMPLETED"), saved("saved", 9)]
    rows = drawn(timeline(lines, "step"))[2:]
    assert "checkpoints of steps 1 to 3 saved, of step 1 removed" in rows[0]
    assert "checkpoint of step 9" in rows[2]
    assert len(rows) == 3
