"""`hposvc audit` and `hposvc repro`: their output and exit codes."""

import json

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc.analysis import reproduction

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
    for verb in ("audit", "repro"):
        code, out, err = hposvc(verb, "five", "t0099")
        assert (code, out) == (4, "")
        assert "five has no trial t0099; `hposvc trials five` lists them" in err
        assert hposvc(verb, "nobody", "t0001").code == 4


def test_a_repro_that_was_interrupted_gives_its_verdict_when_it_is_resumed(hposvc, sweeps):
    before = reproduction.original(sweeps, "five", "t0002", accept_code=False)
    api.create(sweeps, before.spec, before.again)  # its driver is gone
    code, out, err = hposvc("resume", before.again, "-o", "json")
    assert code == 0, err
    data = json.loads(out)
    assert (data["verdict"], data["sweep"], data["again"]) == ("equal", "five", before.again)
    row, original = (sweeps.journal.find(name) for name in (before.again, "five"))
    assert reproduction.resumed(sweeps, original) is None
    sweeps.journal.remove("five")
    assert reproduction.resumed(sweeps, row) is None, "there is nothing to compare it with"


def test_repro_trains_a_trial_again_and_gives_its_verdict(hposvc, sweeps):
    code, out, err = hposvc("repro", "five", "t0002", "-o", "json")
    assert code == 0, err
    data = json.loads(out)
    assert (data["verdict"], data["sweep"], data["trial"]) == ("equal", "five", "t0002")
    assert data["before"] == data["now"]
    again = api.load(sweeps, data["again"])
    assert (again.row.id, len(again.state.trials)) == ("five-repro-t0002", 1)
    assert again.state.trials["t0001"].steps == api.load(sweeps, "five").state.trials["t0002"].steps
