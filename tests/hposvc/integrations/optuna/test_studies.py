"""Studies of Optuna in `hposvc.optuna.Storage`: by Optuna's own tests, and by many processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import optuna
import pytest
import real_server
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import TrialState
from optuna_dashboard import wsgi
from werkzeug.test import Client

import hposvc
from hposvc.integrations.optuna.recorded_sweeps import ReadOnly

PROCESSES, EACH = 4, 10
SCRIPT = """
import sys

import optuna

import hposvc

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    x = trial.suggest_float("x", -5, 5)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    for step in range(3):
        trial.report(x * x + step, step)
    trial.set_user_attr("process", int(sys.argv[1]))
    print("began", trial.number, flush=True)
    if sys.argv[2] == "hang":
        input()
    return x * x + (kind == "a")


study = optuna.load_study(study_name="shared", storage=hposvc.optuna.Storage())
study.optimize(objective, n_trials=int(sys.argv[3]))
"""


@pytest.fixture
def home(database, tmp_path, monkeypatch):
    """A home on each kind of database."""
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    monkeypatch.setenv("HPOSVC_DB", database)
    return tmp_path / "home"


class TestStudies(StorageTestCase):
    @pytest.fixture
    def storage(self, home):
        return hposvc.optuna.Storage()


def start(number, hangs=False, trials=EACH):
    words = [sys.executable, "-c", SCRIPT, f"{number}", "hang" if hangs else "go", f"{trials}"]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_share_a_study_and_one_that_is_killed_loses_nothing(home):
    optuna.create_study(study_name="shared", storage=hposvc.optuna.Storage())
    victim = start(99, hangs=True)
    assert victim.stdout.readline() == "began 0\n"
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    workers = [start(number) for number in range(PROCESSES)]
    for worker in workers:
        assert worker.communicate(timeout=300)[1] == ""
        assert worker.returncode == 0

    study = optuna.load_study(study_name="shared", storage=hposvc.optuna.Storage())
    killed, *others = study.trials
    assert killed.state == TrialState.RUNNING
    assert killed.intermediate_values == {
        step: killed.params["x"] * killed.params["x"] + step for step in range(3)
    }
    assert [trial.number for trial in study.trials] == [*range(1 + PROCESSES * EACH)]
    assert {trial.state for trial in others} == {TrialState.COMPLETE}
    assert Counter(trial.user_attrs["process"] for trial in others) == dict.fromkeys(
        range(PROCESSES), EACH
    )
    for trial in others:
        expected = trial.params["x"] * trial.params["x"]
        assert trial.value == expected + (trial.params["kind"] == "a")
        assert trial.intermediate_values == {step: expected + step for step in range(3)}


def test_what_waits_is_taken_by_one_process_alone(home):
    study = optuna.create_study(study_name="shared", storage=hposvc.optuna.Storage())
    for at in range(PROCESSES * EACH):
        study.enqueue_trial({"x": at / 100, "kind": "b"})
    workers = [start(number) for number in range(PROCESSES)]
    for worker in workers:
        assert worker.communicate(timeout=300)[1] == ""
    values = [trial.params["x"] for trial in study.trials]
    assert values == [at / 100 for at in range(PROCESSES * EACH)]


def test_a_study_and_a_sweep_are_side_by_side_and_the_dashboard_shows_both(tmp_path):
    storage = hposvc.optuna.Storage(tmp_path)
    study = optuna.create_study(storage=storage, sampler=hposvc.optuna.Sampler("gp", seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    sections = {"engine": "local", "tracking": {"send_to": []}, "progress": False}
    result = hposvc.optuna.run(
        lambda trial: trial.suggest_float("x", 0, 1), 3, home=tmp_path, **sections
    )
    assert optuna.get_all_study_names(storage) == [study.study_name, result.sweep]
    dashboard = Client(wsgi(storage))
    listed = json.loads(dashboard.get("/api/studies").data)["study_summaries"]
    assert [each["study_name"] for each in listed] == [study.study_name, result.sweep]
    note = {"body": "looks good", "version": 1}
    written = dashboard.put(f"/api/studies/{listed[0]['study_id']}/note", json=note)
    assert written.status_code == 204

    recorded = hposvc.optuna.from_study(study, home=tmp_path)
    assert recorded.status()["trials"]["completed"] == 5
    optuna.delete_study(study_name=study.study_name, storage=storage)
    assert result.sweep in optuna.get_all_study_names(hposvc.optuna.Storage(tmp_path))


def test_an_interrupted_study_goes_on_in_another_process(home):
    storage = hposvc.optuna.Storage()
    optuna.create_study(study_name="shared", storage=storage)
    for number in (0, 1):
        worker = start(number, trials=2)
        assert worker.communicate(timeout=300)[1] == ""
    deadline = time.monotonic() + 30
    study = optuna.load_study(study_name="shared", storage=storage)
    while len(study.trials) < 4:  # of the storage that was opened before
        assert time.monotonic() < deadline
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]


def test_a_server_takes_no_studies_and_says_where_to_write_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'cache'}")
    with real_server.serving(tmp_path / "home") as server:
        storage = hposvc.optuna.Storage(server.url)
        with pytest.raises(ReadOnly, match="without its URL it takes studies too"):
            optuna.create_study(storage=storage)
        with pytest.raises(KeyError):
            storage.get_all_trials(0)
