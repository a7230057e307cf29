"""The verbs of the command line, called from Python."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from simulated_sweeps import make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import Problem, SpecError
from hposvc.events import Attached
from hposvc.text import finite
from trainables.runtime.assignment import log_file

MANY = {"max": 210, "parallel": 8}  # so many that a simulation is not sent to MLflow


def make(**sections):
    return make_spec(**{"trials": MANY, "scheduler": {"type": "asha"}, **sections})


def events(sweeps, sweep):
    return [event for _, event in sweeps.journal.read(sweep)]


def test_a_sweep_is_recorded_once_under_its_name(sweeps):
    row = api.create(sweeps, make(name="digits", project="demo"))
    assert row.id.startswith("digits-")
    assert (row.name, row.project) == ("digits", "demo")
    assert specs.load(row.spec) == make(name="digits", project="demo")
    assert api.create(sweeps, make(), "mine").id == "mine"
    with pytest.raises(SpecError, match="there is a sweep mine already; `hposvc resume mine`"):
        api.create(sweeps, make(), "mine")


@pytest.mark.parametrize("is_begun", [False, True])
def test_versions_that_cannot_be_stored_take_nothing_from_another_process(
    sweeps, monkeypatch, is_begun
):
    def freeze(spec, own, others):
        if is_begun:  # by a process that was faster
            sweeps.journal.create(replace(row, id="s"))
        own.mkdir()
        raise SpecError([Problem((), "no space left")])

    row = api.create(sweeps, make_spec(), "other")
    monkeypatch.setattr(api, "freeze", freeze)
    with pytest.raises(SpecError, match="no space left"):
        api.create(sweeps, make_spec(), "s")
    assert sweeps.home.folder("s", None).exists() == is_begun


def test_a_sweep_runs_and_is_what_its_journal_says(sweeps):
    row = api.create(sweeps, make())
    status = api.drive(sweeps, row).status()
    assert status == api.load(sweeps, row.id).status()
    assert (status.state, status.driver) == ("COMPLETED", "none")
    assert status.trials.total == 210
    assert status.trials.completed + status.trials.stopped == 210
    assert status.best == api.load(sweeps, row.id).best()
    trials = api.load(sweeps, row.id).trials()
    assert len(trials) == 210
    assert status.best.value == min(trial.value for trial in trials)
    json.dumps(finite([status, trials]), allow_nan=False)


DIE = """
import os, sys
from pathlib import Path
from hposvc import api
from hposvc.journal.home import find

class Die:
    def on_events(self, state, events):
        if len(state.trials) > 50:
            os._exit(9)

sweeps = api.Sweeps.open(Path(sys.argv[1]))
api.drive(sweeps, find(sweeps.journal, sys.argv[2]), [Die()])
"""


def begin_and_die(home, sweep):
    command = [sys.executable, "-c", DIE, str(home), sweep]
    path = ":".join(filter(None, sys.path))
    done = subprocess.run(command, env={"PYTHONPATH": path}, check=False, timeout=60)
    assert done.returncode == 9


def test_a_driver_that_died_is_followed_by_one_that_finishes(sweeps, tmp_path):
    row = api.create(sweeps, make())
    begin_and_die(tmp_path / "home", row.id)
    before = api.load(sweeps, row.id).status()
    assert (before.state, before.driver) == ("INTERRUPTED", "dead")
    status = api.drive(sweeps, row).status()
    assert (status.state, status.trials.total) == ("COMPLETED", 210)
    assert sum(isinstance(event, Attached) for event in events(sweeps, row.id)) == 2


TRAIN = """
def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": params["lr"]})
"""


def file_spec(file):
    return make_spec(engine="local", trainable=f"{file}:train")


def test_changed_code_is_not_gone_on_with_unasked(sweeps, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TRAIN)
    row = api.create(sweeps, file_spec(file))
    file.write_text(TRAIN + "\n")
    with pytest.raises(SpecError, match=rf"mine.py:train changed since {row.id}.*--accept-code"):
        api.drive(sweeps, sweeps.find(row.id))


def test_what_a_trial_puts_among_its_logs_is_no_log(sweeps, tmp_path):
    row = api.create(sweeps, make())
    api.drive(sweeps, row)
    log = log_file(sweeps.home.folder(row.id, None), "t0003", 1, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "secret").write_text("sesame")
    log.write_text("hello")
    log.with_name("x-y.log").touch()
    log.with_name("2-0.log").symlink_to(tmp_path / "secret")
    os.mkfifo(log.with_name("3-0.log"))
    (found,) = api.logs(sweeps, api.load(sweeps, row.id), "t0003")
    assert found.part(100)["text"] == "hello"
    assert found.part(100, offset=2)["text"] == "llo"
    shortened = found.part(100, offset=70)  # the reader had seen more than there is now
    assert (shortened["text"], shortened["next"]) == ("", 5)
    log.unlink()
    log.symlink_to(tmp_path / "secret")  # swapped after it was listed
    with pytest.raises(OSError, match="symbolic links"):
        found.part(100)
