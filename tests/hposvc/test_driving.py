"""What a driver gives the trials of a sweep on this machine."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from hposvc import api, steering
from hposvc.events import Ended
from hposvc.lease import Busy, Lease
from hposvc.reading.problems import SpecError
from hposvc.redactor import Redactor
from trainables.slots.assignment import log_file

SECRET = "hunter-22-never-seen"
TRAIN = """
import os

def train(params, worker):
    if params["bad"]:
        raise ValueError("no access with " + os.environ["PASSWORD"])
    worker.report(1, {"loss": float(os.environ["PASSWORD"] == os.environ["MODE"][:-1])})
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "password").write_text(SECRET)
    monkeypatch.delenv("PASSWORD", raising=False)
    return api.validate(
        {
            "trainable": f"{tmp_path / 'train.py'}:train",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"bad": {"values": [True, False]}},
            "trials": {"max": 2},
            "search": "grid",
            "engine": "local",
            "environment": {
                "env": {"MODE": f"{SECRET}!"},
                "secrets": [{"PASSWORD": f"file:{tmp_path / 'password'}"}],
            },
        },
        {},
    )


def test_trials_see_variables_and_secrets_and_the_journal_sees_no_secret(spec, home):
    sweeps = api.Sweeps(home, home.journal())
    record = api.drive(sweeps, api.create(sweeps, spec, "one"))
    failed, completed = record.trials()
    assert (failed["state"], completed["state"], completed["value"]) == ("FAILED", "COMPLETED", 1.0)
    assert "no access with [secret]" in record.failures()["t0001"]
    assert not {"PASSWORD", "MODE"} & os.environ.keys()


def test_what_a_driver_died_over_in_the_end_is_deleted_when_the_sweep_is_resumed(spec, home):
    """Its last word was in the journal, and half a checkpoint that nobody needs on the disk."""
    sweeps = api.Sweeps(home, home.journal())
    api.drive(sweeps, api.create(sweeps, spec, "one"))
    events = sweeps.journal.last("one")
    folder = home.folder("one", None) / "checkpoints" / "t0001"
    for name in (".removed-1-1", "1-2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_text("half of it")
    assert api.resume(sweeps, "one").state.finished
    assert sweeps.journal.last("one") == events
    assert list(folder.iterdir()) == []


def test_what_killed_ranks_wrote_is_redacted_too(spec, home):
    """A rank that is killed can't blot secrets out itself; the next driver does for a dead one."""
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "one")
    log = log_file(home.folder("one", None), "t0001", 9, 0)
    log.parent.mkdir(parents=True)
    log.write_text(f"logging in with {SECRET}\n")
    redactor = Redactor(home.folder("one", None), [SECRET])
    state = api.load(sweeps, row.id).state
    redactor.turn(state, [Ended(0.0, 8, "t0001")])
    assert SECRET in log.read_text()
    redactor.turn(state, [Ended(0.0, 9, "t0001")])
    assert log.read_text() == "logging in with [secret]\n"
    log.write_text(SECRET)
    api.drive(sweeps, row)
    assert log.read_text() == "[secret]"


def test_a_sweep_is_ended_without_its_secrets(spec, home, tmp_path):
    sweeps = api.Sweeps(home, home.journal())
    api.create(sweeps, spec, "one")
    (tmp_path / "password").unlink()
    assert steering.steer(sweeps, "one", "stop").state == "STOPPED"


def test_a_secret_that_is_missing_ends_the_run_before_a_trial(spec, home, tmp_path):
    (tmp_path / "password").unlink()
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "one")
    with pytest.raises(SpecError, match=r"environment.secrets: PASSWORD: .* can't be read"):
        api.drive(sweeps, row)
    assert api.trials(sweeps, "one") == []


def test_a_driver_that_lost_its_lease_as_its_cluster_started_leaves_nothing_of_it(
    spec, home, monkeypatch
):
    @contextmanager
    def lost(lease):
        yield
        raise Busy("its lease has run out")

    monkeypatch.setattr(Lease, "kept", lost)
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "one")
    with pytest.raises(Busy):
        api.drive(sweeps, row)
    assert "MODE" not in os.environ, "an engine's, until it is closed"
    assert sweeps.journal.last("one") == 0
