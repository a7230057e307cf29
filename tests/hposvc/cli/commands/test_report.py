"""`hposvc report`: what it prints and its exit codes."""

import odd_sweeps
import pytest
from command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    odd_sweeps.record(folder, "one")
    return folder


@pytest.fixture(autouse=True)
def _here(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPOSVC_HOME", str(folder))
    monkeypatch.delenv("HPOSVC_DB", raising=False)


def test_it_prints_the_file_to_open(capfd, tmp_path):
    answer = run(capfd, "report", "last")
    assert (answer.code, answer.out) == (0, "one-report.html\n")
    assert (tmp_path / "one-report.html").stat().st_size > 50_000


def test_as_json_it_prints_all_files(capfd, tmp_path):
    answer = run(capfd, "-o", "json", "report", "one", "--out", "x.md")
    assert answer.data["files"][0] == "x.md"
    assert all((tmp_path / name).exists() for name in answer.data["files"])
