"""If these fail, `hposvc doctor ID` is silent where it should speak, or exits as if all is well."""

import json

import pytest

from hposvc.tracking.mlflow_server import QUIET


@pytest.fixture
def doctor(home, hposvc, monkeypatch):
    """Return a function that runs `doctor`, and returns exit code, stdout and stderr."""
    for name, value in QUIET.items():  # set by the command, which never unsets them
        monkeypatch.setenv(name, value)
    return lambda *arguments: hposvc("--home", home.path, "doctor", *arguments)


def test_a_sweep_is_told_wrong_mended_and_told_right(doctor, simulated, tracked):
    row, _ = simulated("valley-1", trials={"max": 2})
    code, out, _ = doctor("valley-1")
    assert (code, out.count("--fix tells it again")) == (5, 3)
    assert "differs from the journal in 3 things" in " ".join(out.split())
    assert "hposvc doctor valley-1 --fix" in out
    code, out, _ = doctor("last", "--fix")
    assert code == 0
    assert "agrees with the journal, now that it was mended: 3 runs" in " ".join(out.split())
    assert len(tracked.runs(row.id)) == 3
    code, out, _ = doctor("valley", "-o", "json")
    comparison = json.loads(out)
    assert (code, comparison["agrees"], comparison["runs"], comparison["differences"]) == (
        0,
        True,
        3,
        [],
    )
    tracked.client.delete_tag(tracked.runs(row.id)["t0002"].info.run_id, "hposvc.reason")
    code, out, _ = doctor("valley", "-o", "json")
    [difference] = json.loads(out)["differences"]
    assert (code, difference["run"], difference["what"], difference["found"]) == (
        5,
        "t0002",
        "tag hposvc.reason",
        "none",
    )


def test_what_is_not_there_or_makes_no_sense_is_refused(doctor):
    code, _, err = doctor("nothing")
    assert (code, "no such sweep" in err) == (4, True)
    code, _, err = doctor("--fix")
    assert (code, "give its ID" in err) == (2, True)
    code, _, err = doctor("nothing", "--deep")
    assert (code, "--deep" in err) == (2, True)


def test_a_tracker_out_of_reach_exits_5(doctor, simulated):
    simulated("far-1", trials={"max": 1}, tracking={"uri": "http://me:secret@127.0.0.1:9"})
    code, out, err = doctor("far-1")
    assert (code, out) == (5, "")
    assert "MLflow at http://***@127.0.0.1:9" in err
    assert "secret" not in err
