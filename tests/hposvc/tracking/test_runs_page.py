import json
from urllib.parse import parse_qs, urlparse

import pytest
from simulated_sweeps import make_spec

from hposvc.tracking.projection import OBJECTIVE
from hposvc.tracking.runs_page import (
    LOCAL,
    MOST_SWEEPS,
    address,
    note_line,
    note_with,
    run_address,
    view,
)


@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("https://mlflow.example.org/", "https://mlflow.example.org"),
        ("sqlite:////home/me/mlflow.db", LOCAL),
    ],
)
def test_the_address_opens_the_view_of_the_sweep(uri, server):
    parts = urlparse(address(uri, "7", "a sweep&1").replace("#/", ""))
    assert f"{parts.scheme}://{parts.netloc}" == server
    assert parts.path == "/experiments/7/runs"
    assert parse_qs(parts.query)["viewStateShareKey"] == ["a sweep&1"]


@pytest.mark.parametrize("uri", ["https://me:a@b@host:8080/team@1/", "https://host:8080/team@1"])
def test_the_address_of_a_run_keeps_its_path_and_loses_its_credentials(uri):
    address = run_address(uri, "7", "abc")
    assert address.startswith("https://host:8080/team@1/#/experiments/7/runs/abc/artifacts?")


def test_a_view_shows_the_objective_before_parameters_and_sorts_by_it():
    shown = json.loads(view("valley-1", make_spec(), finished=False))
    assert shown["searchFilter"] == "tags.`hposvc.sweep` = 'valley-1'"
    assert shown["selectedColumns"][0] == f"metrics.`{OBJECTIVE}`"
    assert "params.`lr`" in shown["selectedColumns"]
    assert (shown["orderByKey"], shown["orderByAsc"]) == ("tags.`hposvc.best`", False)
    ended = json.loads(view("valley-1", make_spec(), finished=True))
    assert (ended["orderByKey"], ended["orderByAsc"]) == ("tags.`hposvc.rank`", True)


def test_the_newest_sweep_is_at_the_top_of_the_description_and_each_is_there_once():
    note = ""
    for number in range(MOST_SWEEPS + 2):
        for result in ("running", "loss 0.5 by t0001"):
            line = note_line("7", "abc", f"s-{number}", result, "report.html")
            note = note_with(note, line)
    lines = note.splitlines()[::2]
    assert lines[0] == line
    assert "(#/experiments/7/runs/abc/artifacts/report.html?" in line
    assert len(lines) == MOST_SWEEPS
    assert "running" not in note


def test_a_description_that_a_person_wrote_or_changed_stays():
    line = note_line("7", "abc", "s", "running", "")
    assert "report" not in line
    assert note_with("Our digits.", line) is None
    assert note_with(f"Our digits.\n\n{line}", line) is None
