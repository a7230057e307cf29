"""Files of reports: their names, formats and errors."""

import json
from dataclasses import replace

import odd_sweeps
import pytest

from hposvc import api
from hposvc.errors import SpecError, StoreError
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.writing import report


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return odd_sweeps.record(tmp_path_factory.mktemp("home"), "plain", "one")


def test_the_ending_says_the_format_and_the_format_the_ending(sweeps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = [OpenSweep(sweeps, "one")]
    assert [file.name for file in report(one)] == ["one-report.html"]
    assert [file.name for file in report(one, form="json")] == ["one-report.json"]
    (text, *pictures) = report(one, tmp_path / "deep" / "x.md")
    assert text == tmp_path / "deep" / "x.md"
    assert all(file.exists() and file.name.startswith("x-") for file in pictures)
    (file,) = report([*one, OpenSweep(sweeps, "plain")])
    assert file.name == "report.html"
    assert not list(tmp_path.rglob(".*"))


def test_a_sweep_that_goes_on_has_a_report_of_what_is_known(sweeps, tmp_path):
    row = replace(sweeps.journal.find("plain"), id="live")
    events = [event for _, event in sweeps.journal.read("plain")]
    assert sweeps.journal.create(row)
    sweeps.journal.append("live", 0, events[: len(events) // 2])
    (file,) = report([OpenSweep(sweeps, "live")], tmp_path / "x.json")
    (section,) = json.loads(file.read_text())["sweeps"]
    assert section["best"][0]["trial"] == api.load(sweeps, "live").best().trial
    assert section["state"] not in ("COMPLETED", "STOPPED")
    (page,) = report([OpenSweep(sweeps, "live")], tmp_path / "x.html")
    assert "How to reproduce it" in page.read_text()


def test_an_unknown_ending_is_refused(sweeps, tmp_path):
    with pytest.raises(SpecError, match=r"end it in \.html, \.md or \.json"):
        report([OpenSweep(sweeps, "one")], tmp_path / "x.pdf")


def test_a_file_that_cannot_be_written_is_named(sweeps, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="give another --out"):
        report([OpenSweep(sweeps, "one")], tmp_path / "file" / "x.html")
