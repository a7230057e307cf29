"""A full disk, as people meet it: the sweep pauses with a word, and nothing is lost."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from small_disk import SIZE, small

from hposvc import api
from hposvc.events import Attached, Finished, Ordered, Reported, StorageExhausted
from hposvc.journal.database import Store
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent
TRAIN = """
import os, time

def train(params, worker):
    start = worker.restore()
    begun = 0 if start is None else int((start / "step").read_text())
    for step in worker.steps():
        assert step == begun + 1, (step, begun)
        begun = step
        folder = worker.scratch()
        (folder / "step").write_text(str(step))
        (folder / "weights").write_bytes(os.urandom(150_000))
        worker.report(step, {"loss": params["lr"] / step}, folder)
"""


@pytest.fixture
def hposvc(tmp_path):
    """The command line in a process of its own: what it exits with, prints and says."""
    moved = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI")
    environment = {name: value for name, value in os.environ.items() if name not in moved}
    environment |= {"HPOSVC_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}

    def run(*arguments, **variables):
        command = [sys.executable, "-m", "hposvc", *map(str, arguments)]
        variables = {**environment, **variables}
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=120, env=variables
        )

    return run


def write_spec(folder, storage):
    (folder / "train.py").write_text(TRAIN)
    spec = {
        "trainable": f"{folder / 'train.py'}:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 4},
        "parameters": {"lr": {"min": 0.1, "max": 1.0}},
        "search": "random",
        "trials": {"max": 4},
        "engine": "local",
        "storage": str(storage),
        "failure": {"infra_retries": 0},
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def steps(events):
    """Of each trial, in the order reported; an order that is done again begins behind the last."""
    found = {}
    for event in events:
        if isinstance(event, Reported):
            found.setdefault(event.trial, []).append(event.step)
    return found


def test_a_sweep_on_a_full_disk_pauses_and_ends_once_there_is_room(hposvc, tmp_path):
    with small(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(b"1" * (SIZE // 2))
        ran = hposvc("run", write_spec(tmp_path, disk), "--id", "tight")
        assert ran.returncode == 5, ran.stderr
        # Whichever is first: a rank that cannot write, or the look at what is left.
        assert re.search(r"No space left on device|are needed", ran.stderr), ran.stderr
        assert f"{disk}/tight has " in ran.stderr
        assert "free some (hposvc gc), then: hposvc resume tight" in ran.stderr
        assert "PAUSED: disk full" in ran.stdout
        (disk / "ballast").unlink()
        resumed = hposvc("resume", "tight")
        assert resumed.returncode == 0, resumed.stderr
    home = Home.of(tmp_path / "home", {})
    sweeps = api.Sweeps(home, home.journal())
    events = [event for _, event in sweeps.journal.read("tight")]
    assert steps(events) == {f"t000{number}": [1, 2, 3, 4] for number in (1, 2, 3, 4)}
    told = Counter(type(event) for event in events)
    assert (told[StorageExhausted], told[Attached], told[Finished]) == (1, 2, 1)
    trials = api.load(sweeps, "tight").state.trials.values()
    assert all(not trial.failures for trial in trials)
    assert sum(trial.attempts for trial in trials) == told[Ordered]


def test_a_journal_on_a_full_disk_ends_the_driver_with_a_word_and_is_whole(hposvc, tmp_path):
    spec = write_spec(tmp_path, tmp_path / "elsewhere")
    with small(tmp_path / "disk", 8 * SIZE) as disk:
        database = f"sqlite:///{disk / 'hposvc.db'}"
        (disk / "ballast").write_bytes(b"1" * (15 * SIZE // 2))
        long = ("--set", "fidelity.max=20")
        ran = hposvc("run", spec, "--id", "tight", *long, HPOSVC_DB=database)
        assert ran.returncode == 5, ran.stderr
        assert "free some (hposvc gc, hposvc rm ID), then hposvc resume goes on" in ran.stderr
        (disk / "ballast").unlink()
        resumed = hposvc("resume", "tight", HPOSVC_DB=database)
        assert resumed.returncode == 0, resumed.stderr
        events = [event for _, event in Journal(Store(database)).read("tight")]
    assert isinstance(events[-1], Finished)
    found = steps(events)
    assert {trial: sorted(set(each)) for trial, each in found.items()} == {
        f"t000{number}": list(range(1, 21)) for number in (1, 2, 3, 4)
    }
