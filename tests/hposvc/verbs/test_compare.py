"""`hposvc compare`: what it prints and its exit codes."""

import compared_sweeps
import pytest
from command_line import run
from reference_page import braced, verb_documents

import hposvc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    compared_sweeps.record(folder, *compared_sweeps.WIDE, "upward")
    return folder


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", str(folder))
    monkeypatch.delenv("HPOSVC_DB", raising=False)


def test_it_prints_a_table_and_sentences(capfd):
    answer = run(capfd, "compare", *compared_sweeps.WIDE, "--by", "search.method")
    assert answer.code == 0
    assert "search.method" in answer.out
    assert "better than random" in answer.out
    assert "At equal cost (" in answer.out
    assert "3 pairs of equal seeds" in answer.out


def test_json_has_the_documented_keys_in_the_shell_and_in_python(capfd):
    data = run(capfd, "-o", "json", "compare", *compared_sweeps.WIDE, "--by", "search").data
    cell = verb_documents()["compare"]
    assert data.keys() == braced(cell)
    assert data["groups"][0].keys() == braced(cell, 1)
    first, *others = map(hposvc.load, compared_sweeps.WIDE)
    assert first.compare(others, by=["search"]) == data
