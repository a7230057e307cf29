"""`hposvc repro`: its output and exit codes."""

import json
from contextlib import contextmanager

import pytest
from printed import text_of
from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc.analysis import reproduction
from hposvc.analysis.reproduction import ReproductionResult
from hposvc.verbs.foreground import compared
from hposvc.verbs.place import HomeSweeps
from hposvc.verbs.resume import how_it_agrees

GIVEN = {"scheduler": "asha", "trials": {"max": 5, "parallel": 2}, "tracking": {"send_to": []}}


@pytest.fixture
def sweeps(hposvc, tmp_path):
    """Open a home with an ended sweep called `five`."""
    opened = api.Sweeps.open(tmp_path / "home")
    api.create(opened, make_spec(**GIVEN), "five")
    Lab(opened.journal, tmp_path / "lab").run(make_spec(**GIVEN), "five")
    return opened


def test_no_such_trial_is_no_bug(hposvc, sweeps):
    code, out, err = hposvc("repro", "five", "t0099")
    assert (code, out) == (4, "")
    assert "five has no trial t0099; `hposvc trials five` lists them" in err
    assert hposvc("repro", "nobody", "t0001").code == 4


def test_a_repro_that_was_interrupted_gives_its_verdict_when_it_is_resumed(hposvc, sweeps):
    before = reproduction.original(sweeps, "five", "t0002", accept_code=False)
    api.create(sweeps, before.spec, before.again)  # its driver is gone
    code, out, err = hposvc("resume", before.again, "-o", "json")
    assert code == 0, err
    data = json.loads(out)
    assert (data["verdict"], data["sweep"], data["again"]) == ("equal", "five", before.again)
    row, original = (sweeps.journal.find(name) for name in (before.again, "five"))
    assert how_it_agrees(sweeps, api.load(sweeps, original.id)) is None
    sweeps.journal.remove("five")
    assert how_it_agrees(sweeps, api.load(sweeps, row.id)) is None, (
        "there is nothing to compare it with"
    )


def test_repro_trains_a_trial_again_and_gives_its_verdict(hposvc, sweeps):
    code, out, err = hposvc("repro", "five", "t0002", "-o", "json")
    assert code == 0, err
    data = json.loads(out)
    assert (data["verdict"], data["sweep"], data["trial"]) == ("equal", "five", "t0002")
    assert data["before"] == data["now"]
    again = api.load(sweeps, data["again"])
    assert (again.row.id, len(again.state.trials)) == ("five-repro-t0002", 1)
    assert again.state.trials["t0001"].steps == api.load(sweeps, "five").state.trials["t0002"].steps


def test_a_verdict_is_of_the_original_as_it_was_before(sweeps):
    @contextmanager
    def deleting(sweep):
        sweeps.journal.remove("five")
        yield ()

    place = HomeSweeps(sweeps.home, sweeps.journal)
    record, comparison = place.reproduce("five", "t0002", False, None, deleting)
    assert how_it_agrees(place, record) is None
    assert comparison.verdict == "equal"


def test_a_verdict_shows_all_digits_and_the_share_of_the_spread():
    spec = make_spec()
    comparison = ReproductionResult(
        *("s", "t0003", "s-repro-t0003", "loss", "different"),
        "it differs by more than 0.001 of itself",
        *(4, 2, 4, 0.5, 0.62500000000001, 0.12500000000001, 0.25, ("a doubt",)),
    )
    text = text_of(compared(comparison, spec))
    assert "different: it differs by more than 0.001 of itself" in text
    assert "0.5 then, 0.62500000000001 now" in text
    assert "at step 4, the last of 4 that both reported; they differ from step 2 on" in text
    assert "0.125, 25.00% of what lies between the sweep's trials" in text
    assert "a doubt" in text
