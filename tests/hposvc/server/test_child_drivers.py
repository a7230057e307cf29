"""A driver is a process of its own: it checks the code, outlives the server, and is replaced."""

import os
import signal
from contextlib import contextmanager, suppress

import psutil
import pytest
from waiting import until

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Attached, Finished
from hposvc.journal import operations, submissions, submitted_secrets, supervision
from hposvc.journal.home import Home
from hposvc.journal.lease import holder
from hposvc.server import steering
from hposvc.server.child_drivers import ChildDrivers, clean
from hposvc.server.service import Service
from hposvc.server.supervisor import Supervisor

CODE = """
import math
import os
import time
from pathlib import Path

HERE = Path(__file__).parent

def valley(params, step):
    return {"loss": (params["x"] - 2) ** 2 + 1 / step}, 1.0

def train(params, worker):
    for step in worker.steps():
        while step > 1 and not (HERE / "go").exists():
            time.sleep(0.02)
        worker.report(step, {"loss": (params["x"] - 2) ** 2 + 1 / step})
"""
SPEC = {
    "name": "valley",
    "engine": {"type": "simulate", "curve": "code_of_sweep:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "search": "random",
    "trials": {"max": 4, "parallel": 2},
    "tracking": {"send_to": []},
}
PLUG_INS = """
from dataclasses import dataclass

from hposvc.schedulers.scheduler import NewTrial, Running
from searchers.random_search import Random

class Queue(Running):
    def next(self):
        if self.running:
            FAULT
        return self.idle_move() if self.closed else NewTrial(3)

@dataclass(frozen=True)
class Mine:
    def scheduler(self, plan):
        return Queue()

@dataclass(frozen=True)
class Guess(Random):
    def suggest(self, space, history, n, rng):
        if history:
            FAULT
        return super().suggest(space, history, n, rng)
"""
LOCAL = {
    "engine": "local",
    "trainable": "code_of_sweep:train",
    "trials": {"max": 2, "parallel": 1},
    "resources": {"workers": 1},
    "training": {"strategy": "single"},
}


@pytest.fixture
def sweeps(tmp_path, monkeypatch):
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return api.Sweeps.open(tmp_path / "home")


def submit(sweeps, folder, name="s", **changes):
    """Record a sweep as the server does: without its code, which only its driver imports."""
    folder.mkdir(exist_ok=True)
    (folder / "code_of_sweep.py").write_text(CODE)
    spec = specs.load({**SPEC, "folder": str(folder), **changes})
    row = api.prepare(sweeps, spec, name, {})
    submissions.create(sweeps.journal, row, "anna", "digest", None, None)
    return row


@contextmanager
def supervising(sweeps, most=2, environment=None):
    drivers = ChildDrivers(sweeps.home, os.environ if environment is None else environment)
    supervisor = Supervisor(sweeps, drivers, most)
    with supervisor.running():
        try:
            yield drivers
        finally:
            kill_drivers(sweeps)


def kill_drivers(sweeps):
    for row in sweeps.journal.sweeps():
        found = holder(sweeps.journal.store, row.id)
        if found.state == "alive":
            with suppress(psutil.NoSuchProcess):
                psutil.Process(int(found.place.rpartition(":")[2])).kill()


def phase(sweeps, name="s"):
    return api.load(sweeps, name).phase


def test_a_sweep_whose_code_is_refused_fails_with_the_reason(sweeps, tmp_path):
    submit(sweeps, tmp_path / "files", **{**LOCAL, "trainable": "code_of_sweep:missing"})
    with supervising(sweeps):
        until(lambda: supervision.find(sweeps.journal.store, "s") is None, "refused")
    record = api.load(sweeps, "s")
    assert record.phase == "FAILED"
    assert "missing" in record.status().reason
    (operation,) = operations.newest(sweeps.journal.store, "s")
    assert operation.state == "failed"
    assert operation.errors[0]["code"] == "spec_error"
    assert operation.errors[0]["key"] == "trainable"
    assert [event.kind for _, event in sweeps.journal.read("s")] == [Finished.kind]


def test_a_sweep_whose_plug_in_fails_waits_to_be_resumed_with_a_mended_one(sweeps, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    plugs = files / "plugs.py"
    plugs.write_text(PLUG_INS.replace("FAULT", "raise KeyError('second')"))
    submit(sweeps, files, search={"method": "plugs:Guess"})
    with supervising(sweeps):
        until(lambda: supervision.find(sweeps.journal.store, "s") is None, "given up")
        until(lambda: phase(sweeps) == "INTERRUPTED", "its driver is gone")
        log = sweeps.home.folder("s", None) / "logs" / "driver.log"
        until(lambda: f"raised KeyError: 'second' ({plugs}:" in log.read_text(), "the reason")
        plugs.write_text(PLUG_INS.replace("FAULT", "pass"))
        with sweeps.journal.store.writing() as connection:
            supervision.ask(connection, "s")
        until(lambda: phase(sweeps) == "COMPLETED", "the end")
    assert len(api.load(sweeps, "s").state.trials) == 4


def test_a_store_that_does_not_answer_ends_the_sweep_with_the_reason(sweeps, tmp_path):
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    submit(sweeps, tmp_path / "files", **{**LOCAL, "storage": "s3://bucket/sweeps"})
    with supervising(sweeps, environment={**os.environ, **variables, **keys}):
        until(lambda: supervision.find(sweeps.journal.store, "s") is None, "refused")
    assert api.load(sweeps, "s").phase == "FAILED"
    (operation,) = operations.newest(sweeps.journal.store, "s")
    assert operation.errors[0]["key"] == "storage"
    assert "s3://bucket/sweeps/s: can't read" in operation.errors[0]["message"]


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("ray", marks=[pytest.mark.full, pytest.mark.ray])]
)
def test_a_killed_driver_is_replaced_within_seconds(sweeps, tmp_path, engine):
    files = tmp_path / "files"
    submit(sweeps, files, **{**LOCAL, "engine": engine})
    with supervising(sweeps):
        until(lambda: any(t.curve for t in api.load(sweeps, "s").state.trials.values()), "a report")
        first = holder(sweeps.journal.store, "s").place
        os.kill(int(first.rpartition(":")[2]), signal.SIGKILL)
        (files / "go").touch()
        until(lambda: phase(sweeps) == "COMPLETED", "the end")
    attached = [event for _, event in sweeps.journal.read("s") if isinstance(event, Attached)]
    assert len(attached) == 2
    assert sweeps.journal.find("s").code["trainable"] == "code_of_sweep:train"
    trials = api.load(sweeps, "s").state.trials.values()
    assert [[step for step, _ in trial.curve] for trial in trials] == [[1, 2, 3]] * 2


def test_a_driver_gets_no_variables_of_the_server_but_its_secrets(tmp_path):
    environment = {
        **{"PATH": "/bin", "LANG": "C", "HPOSVC_DB": "d", "MLFLOW_TRACKING_URI": "m"},
        **{"CUDA_VISIBLE_DEVICES": "0", "RAY_AUTH_TOKEN": "r", "WANDB": "w", "OTHER": "o"},
        **{"HPOSVC_TOKEN": "t", "HPOSVC_TOKEN_FILE": "f", "HPOSVC_CONFIG": "c"},
    }
    cleaned = clean(environment, Home.of(tmp_path, {}), ["WANDB"])
    kept = {"PATH", "LANG", "HPOSVC_DB", "MLFLOW_TRACKING_URI", "CUDA_VISIBLE_DEVICES"}
    assert set(cleaned) == {*kept, "RAY_AUTH_TOKEN", "WANDB", "HPOSVC_HOME"}
    assert cleaned["HPOSVC_HOME"] == f"{tmp_path}"


def test_a_driver_gets_the_secrets_that_came_with_its_sweep_until_it_is_over(sweeps, tmp_path):
    code = "import os\ndef train(params, worker):\n    for step in worker.steps():\n"
    code += "        worker.report(step, {'loss': float(os.environ['LOSS'])})\n"
    code += "    print('the loss is', os.environ['LOSS'])\n"
    spec = {**LOCAL, "trainable": "secretive:train", "environment": {"secrets": ["LOSS"]}}
    submit(sweeps, tmp_path / "files", **spec)
    (tmp_path / "files" / "secretive.py").write_text(code)
    draft = submitted_secrets.write_draft(sweeps.home, {"LOSS": "0.25"})
    submitted_secrets.adopt(sweeps.home, "s", draft)
    with supervising(sweeps):
        until(lambda: supervision.find(sweeps.journal.store, "s") is None, "at rest")
        record = api.load(sweeps, "s")
        assert (record.phase, record.best().value) == ("COMPLETED", 0.25)
        assert submitted_secrets.read(sweeps.home, "s") == {}
        more, again = {"trials.max": 3}, {"LOSS": "0.125"}
        steering.steer(Service(sweeps), "anna", record.row, "extend", None, more, again)
        until(lambda: supervision.find(sweeps.journal.store, "s") is None, "at rest again")
    record = api.load(sweeps, "s")
    assert (record.phase, record.best().value) == ("COMPLETED", 0.125)
    assert submitted_secrets.read(sweeps.home, "s") == {}
    log = (sweeps.home.folder("s", None) / "logs" / "driver.log").read_text()
    assert log.count("the loss is [secret]\n") == 3


@pytest.mark.parametrize(
    "fault",
    [
        "import os\nprint('at', KEY := os.environ['KEY'])\nraise RuntimeError(KEY)\n",
        "import os\ndef train(params, worker):\n    print('at', os.environ['KEY'])\n"
        "    raise RuntimeError(os.environ['KEY'])\n",
    ],
    ids=["at import", "in a trial"],
)
def test_no_secret_is_in_the_log_of_a_driver_or_in_a_reason(sweeps, tmp_path, fault):
    spec = {**LOCAL, "trainable": "leaking:train", "environment": {"secrets": ["KEY"]}}
    row = submit(sweeps, tmp_path / "files", **spec)
    (tmp_path / "files" / "leaking.py").write_text(fault)
    drivers = ChildDrivers(sweeps.home, {**os.environ, "KEY": "hunter22-never-seen"})
    drivers.start(row)
    until(lambda: not drivers.running(), "its driver has ended")
    record = api.load(sweeps, "s")
    assert record.phase in ("COMPLETED", "FAILED")
    log = (sweeps.home.folder("s", None) / "logs" / "driver.log").read_text()
    told = [record.status(), [*sweeps.journal.read("s")]]
    told += operations.newest(sweeps.journal.store, "s")
    assert "at [secret]\n" in log
    assert "RuntimeError: [secret]" in f"{told}"
    assert "never-seen" not in f"{log}{told}"
