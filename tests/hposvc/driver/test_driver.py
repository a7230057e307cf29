"""A driver on this machine: environment, secrets, leases and leftovers of earlier drivers."""

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from simulated_sweeps import make_spec
from small_disk import read_only
from sqlalchemy import make_url, select
from waiting import until

from hposvc import api
from hposvc.backends.backend import Setting
from hposvc.backends.local import LocalBackend
from hposvc.errors import Fenced, SpecError
from hposvc.events import Attached, Failed, Reported
from hposvc.journal import lease as leases
from hposvc.journal.database import LEASES
from hposvc.journal.journal import Journal
from hposvc.tracking.reconcile import Reconciler
from hposvc.tracking.recorder_process import Recorder

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
            "tracking": {"send_to": []},
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
    assert (failed.state, completed.state, completed.value) == ("FAILED", "COMPLETED", 1.0)
    assert "no access with [secret]" in record.failures()["t0001"]
    assert not {"PASSWORD", "MODE"} & os.environ.keys()


def test_what_a_driver_died_over_in_the_end_is_deleted_when_the_sweep_is_resumed(spec, home):
    """The driver's last event was journaled, but half a checkpoint is left on the disk."""
    sweeps = api.Sweeps(home, home.journal())
    api.drive(sweeps, api.create(sweeps, spec, "one"))
    events = sweeps.journal.last("one")
    folder = home.folder("one", None) / "checkpoints" / "t0001"
    for name in (".removed-1-1", "1-2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_text("half of it")
    assert api.drive(sweeps, sweeps.find("one")).state.finished
    assert sweeps.journal.last("one") == events
    assert list(folder.iterdir()) == []


def test_a_secret_that_is_missing_ends_the_run_before_a_trial(spec, home, tmp_path):
    (tmp_path / "password").unlink()
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "one")
    with pytest.raises(SpecError, match=r"environment.secrets: PASSWORD: .* can't be read"):
        api.drive(sweeps, row)
    assert api.load(sweeps, "one").trials() == []


def test_nothing_is_deleted_before_an_earlier_driver_is_fenced(spec, home, monkeypatch):
    """The earlier driver may be alive, unseen, and about to journal a checkpoint."""
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, spec, "one")
    their_checkpoint = home.folder("one", None) / "checkpoints" / "t0001" / "1-1"
    their_checkpoint.mkdir(parents=True)
    append = Journal.append

    def overtaken(journal, sweep, after, events, *taken):
        append(journal, sweep, after, [Attached(0.0, "there:2")])
        return append(journal, sweep, after, events, *taken)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", overtaken)
        with pytest.raises(Fenced):
            api.drive(sweeps, row)
    assert their_checkpoint.exists()
    assert api.drive(sweeps, sweeps.find("one")).state.finished
    assert not their_checkpoint.exists()


def test_the_lease_is_renewed_until_every_sink_has_everything(spec, home, monkeypatch):
    """Or another driver would take the sweep over while a slow MLflow is told its end."""
    sweeps = api.Sweeps(home, home.journal())
    monkeypatch.setattr(leases, "RENEW_S", 0.05)

    class Slow(Recorder):
        """A recorder whose sinks need longer than a lease lasts by itself."""

        def __exit__(self, *error):
            before = renewed()
            until(lambda: renewed() != before)
            super().__exit__(*error)

    def renewed():
        with sweeps.journal.store.reading() as connection:
            return connection.execute(select(LEASES.c.renewed)).scalar_one()

    monkeypatch.setattr("hposvc.driver.driver.Recorder", Slow)
    assert api.drive(sweeps, api.create(sweeps, spec, "one")).state.finished


RANDOM = """
import random

def train(params, worker):
    for step in worker.steps():
        folder = worker.scratch()
        (folder / "x").write_text("x")
        loss = params["x"] + random.SystemRandom().random()
        worker.report(step, {"loss": loss}, checkpoint=folder)
"""


class PutsBack:
    """Copies the journal's database early, and later puts the copy in its place."""

    def __init__(self, journal, copy, restore):
        self.journal, self.left = journal, [(20, copy), (38, restore)]
        self.lost = {}

    def on_events(self, state, events):
        if self.left and self.journal.last("one") >= self.left[0][0]:
            # So that MLflow has what will be lost.
            until(lambda: self.journal.cursor("one", "mlflow") >= self.left[0][0])
            self.lost = {name: trial.loss_at(1) for name, trial in state.trials.items()}
            self.left.pop(0)[1]()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def copied(request, home, tmp_path):
    """A home, and functions that copy its journal's database and put the copy in its place."""
    if request.param == "sqlite":
        file, copy = Path(make_url(home.database).database), tmp_path / "copy.db"

        def backup():
            with closing(sqlite3.connect(file)) as begin, closing(sqlite3.connect(copy)) as end:
                begin.backup(end)

        def put_back():
            copy.replace(file)
            for part in ("-wal", "-shm"):
                file.with_name(f"{file.name}{part}").unlink(missing_ok=True)

        yield home, backup, put_back
        return
    import postgres_server

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres_server.start())
        except postgres_server.Missing as error:
            pytest.skip(str(error))

        def move(source, target):
            postgres_server.stop(folder)
            shutil.rmtree(target, ignore_errors=True)
            subprocess.run(["cp", "-a", source, target], check=True)
            postgres_server.go_on(folder)

        data, copy = f"{folder}/data", f"{folder}/copy"
        database = postgres_server.create_database(folder, "put-back")
        yield replace(home, database=database), partial(move, data, copy), partial(move, copy, data)


def test_a_journal_that_was_set_back_is_noticed_and_the_sweep_goes_on_from_there(
    copied, tmp_path, caplog
):
    home, copy, restore = copied
    (tmp_path / "draws.py").write_text(RANDOM)
    trainable, x = f"{tmp_path / 'draws.py'}:train", {"x": {"min": 0.0, "max": 1.0}}
    local = {"engine": "local", "trainable": trainable, "parameters": x, "fidelity": {"max": 3}}
    trackers = {"send_to": ["mlflow", "json_lines"]}
    spec = make_spec(**local, trials={"max": 6}, tracking=trackers)
    sweeps = api.Sweeps(home, home.journal())
    row, watcher = api.create(sweeps, spec, "one"), PutsBack(sweeps.journal, copy, restore)
    record = api.drive(sweeps, row, watchers=[watcher])
    assert "one: the journal lost events " in caplog.text
    assert record.state.state == "COMPLETED"
    numbers = [number for number, _ in sweeps.journal.read("one")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert list(sweeps.journal.gaps()) == []
    state = api.load(sweeps, "one").state
    assert state.trials.counts["COMPLETED"] == 6
    values = {name: trial.loss_at(1) for name, trial in state.trials.items()}
    assert values["t0001"] == watcher.lost["t0001"]
    latest = max(watcher.lost)
    assert values[latest] != watcher.lost[latest]  # trained again
    for saved in state.checkpoints.all():
        assert Path(saved.path).is_dir()
    assert Reconciler(home, sweeps.journal, row).compare().differences == ()
    text = (home.folder("one", None) / "tracking.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "metrics"]
    points = sorted((line["trial"], line["step"]) for line in lines if line["trial"])
    assert points == [(trial, step) for trial in state.trials for step in (1, 2, 3)]


SAVES = """
def train(params, worker):
    for step in worker.steps():
        folder = worker.scratch()
        (folder / "x").write_text("x")
        worker.report(step, {"loss": params["x"] / step}, checkpoint=folder)
"""


class CannotWrite:
    """Takes the sweep's checkpoints from it after the first report, until three orders failed."""

    def __init__(self, checkpoints):
        self.checkpoints, self.stack = checkpoints, ExitStack()
        self.begun, self.failed = False, []

    def on_events(self, state, events):
        begun = any(isinstance(event, Reported) for event in events)
        if begun and not self.begun:
            self.begun = True
            self.stack.enter_context(read_only(self.checkpoints))
        self.failed += [event for event in events if isinstance(event, Failed)]
        if len(self.failed) == 3:
            self.stack.close()


def test_storage_that_can_t_be_written_for_a_while_costs_no_trial(home, tmp_path):
    (tmp_path / "saves.py").write_text(SAVES)
    trainable, x = f"{tmp_path / 'saves.py'}:train", {"x": {"min": 0.0, "max": 1.0}}
    local = {"engine": "local", "trainable": trainable, "parameters": x, "fidelity": {"max": 3}}
    spec = make_spec(**local, trials={"max": 2}, tracking={"send_to": []})
    sweeps = api.Sweeps(home, home.journal())
    watcher = CannotWrite(home.folder("one", None) / "checkpoints")
    with watcher.stack:
        record = api.drive(sweeps, api.create(sweeps, spec, "one"), watchers=[watcher])
    assert {event.cause for event in watcher.failed} == {"infra"}
    assert all("Read-only file system" in event.message for event in watcher.failed)
    assert record.state.state == "COMPLETED"
    assert record.state.trials.counts["COMPLETED"] == 2


class DeletesFolder:
    """Deletes a folder once the first trial has reported."""

    def __init__(self, folder):
        self.folder = folder

    def on_events(self, state, events):
        if any(isinstance(event, Reported) for event in events):
            shutil.rmtree(self.folder)


def test_a_folder_that_is_deleted_under_a_driver_is_named_and_the_sweep_can_go_on(
    spec, home, tmp_path, monkeypatch
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    body = 'worker.report(1, {"loss": 1.0})'
    (tmp_path / "train.py").write_text(f"def train(params, worker):\n    {body}\n")
    sweeps, spec = api.Sweeps(home, home.journal()), replace(spec, folder=f"{tmp_path / 'work'}")
    row, watcher = api.create(sweeps, spec, "one"), DeletesFolder(tmp_path / "work")
    with pytest.raises(SpecError, match="work is gone, where the trials run; put it back"):
        api.drive(sweeps, row, watchers=[watcher])
    assert api.load(sweeps, "one").state.state == "RUNNING"
    with pytest.raises(SpecError, match="the folder in which hposvc works is gone"):
        LocalBackend(Setting("s", spec, tmp_path, tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert api.drive(sweeps, row).state.state == "COMPLETED"
