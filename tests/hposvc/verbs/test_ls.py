"""`hposvc ls`: which sweeps it lists, and what it says of those that can't be read."""

import json
from datetime import datetime

import pytest
from simulated_sweeps import make_spec
from sqlalchemy import insert, update

from hposvc import api
from hposvc.cli.main import main
from hposvc.events import Requested
from hposvc.journal.database import EVENTS, SWEEPS
from hposvc.verbs.ls import parse_time
from hposvc.verbs.reading import ls

MANY = {"max": 210, "parallel": 8}  # so many that a simulation is not sent to MLflow


def make(**sections):
    return make_spec(**{"trials": MANY, "scheduler": {"type": "asha"}, **sections})


def test_sweeps_are_listed_newest_first_by_project_tag_and_age(sweeps):
    first = api.create(sweeps, make(project="demo", tags={"who": "me", "n": 3}))
    second = api.create(sweeps, make(project="other", tags={"who": "you"}))
    assert [row.sweep for row in ls(sweeps)] == [second.id, first.id]
    assert [row.sweep for row in ls(sweeps, project="demo")] == [first.id]
    assert [row.sweep for row in ls(sweeps, tag="who")] == [second.id, first.id]
    assert [row.sweep for row in ls(sweeps, tag="who=you")] == [second.id]
    assert [row.sweep for row in ls(sweeps, tag="n=3")] == [first.id]
    assert [row.sweep for row in ls(sweeps, since=second.created)] == [second.id]


def test_an_ended_sweep_is_listed_without_its_events_until_something_happens(sweeps, monkeypatch):
    row = api.create(sweeps, make())
    assert ls(sweeps)[0].state == "QUEUED"
    api.drive(sweeps, row)
    first = ls(sweeps)
    with monkeypatch.context() as patch:
        patch.delattr(api, "follow_row")
        assert ls(sweeps) == first
    assert (first[0].state, first[0].trials) == ("COMPLETED", 210)
    more = Requested(0.0, "extend", None, {"trials.max": 220})
    sweeps.journal.append(row.id, sweeps.journal.last(row.id), [more])
    assert ls(sweeps)[0].state == "QUEUED"


def unreadable(sweeps, name, kind="renewed", body="{}", **spec):
    """Record a sweep as a later version would write it."""
    row = api.create(sweeps, make(), name)
    with sweeps.journal.store.writing() as connection:
        event = {"sweep": name, "seq": 1, "kind": kind, "time": 1.0, "body": body}
        connection.execute(insert(EVENTS), event)
        changed = json.dumps({**row.spec, **spec})
        connection.execute(update(SWEEPS).where(SWEEPS.c.id == name).values(spec=changed))


def test_one_sweep_that_cannot_be_read_hides_no_other(sweeps, capsys):
    api.create(sweeps, make(), "fine")
    unreadable(sweeps, "kind")
    unreadable(sweeps, "field", "attached", '{"driver": "h:1", "colour": "red"}')
    unreadable(sweeps, "key", "attached", '{"driver": "h:1"}', dreams=True)
    listed = {row.sweep: row for row in ls(sweeps)}
    assert {name: row.state for name, row in listed.items()} == {
        **dict.fromkeys(("kind", "field", "key"), "UNREADABLE"),
        "fine": "QUEUED",
    }
    assert "event kind 'renewed' is unknown here" in listed["kind"].why
    assert "an event of kind 'attached' is unknown here" in listed["field"].why
    assert "dreams: no such key" in listed["key"].why
    assert listed["fine"].why is None
    for verb, code in ((["ls"], None), (["status", "fine"], None), (["gc"], 5)):
        with pytest.raises(SystemExit) as left:
            main([*verb, "--home", f"{sweeps.home.path}"])
        assert (left.value.code or None) == code
        captured = capsys.readouterr()
        if verb == ["ls"]:
            assert "kind can't be read: journal: event kind 'renewed'" in captured.err
            assert captured.out.count("UNREADABLE") == 3


def test_a_moment_is_a_date_or_a_time_ago():
    assert parse_time("2h", now=10_000.0) == 2_800.0
    assert parse_time("2025-11-01", now=0.0) == datetime(2025, 11, 1).timestamp()
    with pytest.raises(ValueError, match="90s, 30m, 2h"):
        parse_time("yesterday", now=0.0)
