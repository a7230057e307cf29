"""Studies of Optuna in `hposvc.optuna.Storage`: by Optuna's own tests, and by many processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import optuna
import pytest
import real_server
from optuna.exceptions import DuplicatedStudyError
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import TrialState

import hposvc
from hposvc.errors import OutOfReach

PROCESSES, EACH = 4, 10
SCRIPT = """
import multiprocessing
import sys

import optuna

import hposvc

optuna.logging.set_verbosity(optuna.logging.ERROR)
numbers, hangs, trials, *place = sys.argv[1:]


def work(number):
    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        kind = trial.suggest_categorical("kind", ["a", "b"])
        for step in range(3):
            trial.report(x * x + step, step)
        trial.set_user_attr("process", int(number))
        print("began", trial.number, flush=True)
        if hangs == "hang":
            input()
        return x * x + (kind == "a")

    storage = hposvc.optuna.Storage(*place)
    study = optuna.load_study(study_name="shared", storage=storage)
    study.optimize(objective, n_trials=int(trials))


first, *others = numbers.split(",")
forks = multiprocessing.get_context("fork")
workers = [forks.Process(target=work, args=(number,)) for number in others]
for worker in workers:
    worker.start()
work(first)
for worker in workers:
    worker.join()
sys.exit(max([0, *(abs(worker.exitcode) for worker in workers)]))
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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, which has no studies at the beginning of each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPOSVC_HOME", f"{tmp_path_factory.mktemp('cache')}")
        with real_server.serving(tmp_path_factory.mktemp("home")) as server:
            yield server


@pytest.mark.full
class TestServedStudies(StorageTestCase):
    @pytest.fixture
    def storage(self, served):
        storage = hposvc.optuna.Storage(served.url)
        for study in storage.get_all_studies():
            storage.delete_study(study._study_id)
        return storage


def start(*numbers, hangs=False, trials=EACH, place=()):
    """Start a process for each number; all but the first are forks, which spares their imports."""
    last = ("hang" if hangs else "go", f"{trials}", *place)
    words = [sys.executable, "-c", SCRIPT, ",".join(map(str, numbers)), *last]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def check_shared(study):
    """Check that the first trial was cut off by a kill, and all others are there once."""
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


def kill_in_its_first_trial(victim):
    assert victim.stdout.readline() == "began 0\n"
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()


@pytest.mark.long
def test_processes_share_a_study_and_one_that_is_killed_loses_nothing(home):
    optuna.create_study(study_name="shared", storage=hposvc.optuna.Storage())
    kill_in_its_first_trial(start(99, hangs=True))
    workers = start(*range(PROCESSES))
    assert workers.communicate(timeout=300)[1] == ""
    assert workers.returncode == 0
    check_shared(optuna.load_study(study_name="shared", storage=hposvc.optuna.Storage()))


@pytest.mark.full
@pytest.mark.timeout(600)
def test_through_a_server_that_is_killed_again_and_again_each_trial_is_there_once(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'cache'}")
    home = tmp_path / "home"
    with real_server.ending_drivers(home):
        server = real_server.Served(home)
        try:
            place = (server.url,)
            optuna.create_study(study_name="shared", storage=hposvc.optuna.Storage(*place))
            kill_in_its_first_trial(start(99, hangs=True, place=place))
            workers = [start(number, place=place) for number in range(PROCESSES)]
            began = [worker.stdout.readline() for worker in workers]
            assert all(line.startswith("began ") for line in began)  # the server has answered all
            for kills in range(3):
                log = hposvc.optuna.Storage(home)
                study = optuna.load_study(study_name="shared", storage=log)
                ended = len(study.get_trials(states=[TrialState.COMPLETE]))
                deadline = time.monotonic() + 120
                while len(study.get_trials(states=[TrialState.COMPLETE])) < ended + 4:
                    assert time.monotonic() < deadline
                assert any(worker.poll() is None for worker in workers), kills
                server = real_server.Served(home, server.kill())
            for worker in workers:
                assert worker.communicate(timeout=300)[1] == ""
                assert worker.returncode == 0
            check_shared(
                optuna.load_study(study_name="shared", storage=hposvc.optuna.Storage(*place))
            )
        finally:
            server.kill()


@pytest.mark.parametrize("through", ["a home", "a server"])
def test_forked_processes_share_a_storage_and_no_trial_is_run_twice(through, served):
    place = served.url if through == "a server" else served.home
    storage = hposvc.optuna.Storage(place)
    study = optuna.create_study(storage=storage)
    study.ask()  # the connection is in use before the fork

    def work(number):
        for _ in range(EACH):
            trial = study.ask()
            trial.set_user_attr("process", number)
            study.tell(trial, trial.number)

    forks = multiprocessing.get_context("fork")
    workers = [forks.Process(target=work, args=(number,)) for number in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    first, *others = study.trials
    assert first.state == TrialState.RUNNING
    assert [trial.value for trial in others] == [*range(1, 1 + PROCESSES * EACH)]
    assert Counter(trial.user_attrs["process"] for trial in others) == dict.fromkeys(
        range(PROCESSES), EACH
    )


@pytest.mark.full
def test_what_waits_is_taken_by_one_process_alone(home):
    study = optuna.create_study(study_name="shared", storage=hposvc.optuna.Storage())
    for at in range(PROCESSES * EACH):
        study.enqueue_trial({"x": at / 100, "kind": "b"})
    workers = start(*range(PROCESSES))
    assert workers.communicate(timeout=300)[1] == ""
    values = [trial.params["x"] for trial in study.trials]
    assert values == [at / 100 for at in range(PROCESSES * EACH)]


def test_a_study_of_a_server_lies_beside_its_sweeps(served):
    storage = hposvc.optuna.Storage(served.url)
    sections = {"engine": "local", "tracking": {"send_to": []}, "progress": False}
    result = hposvc.optuna.run(
        lambda trial: trial.suggest_float("x", 0, 1), 3, home=served.home, **sections
    )
    with pytest.raises(DuplicatedStudyError, match=result.sweep):
        optuna.create_study(study_name=result.sweep, storage=storage)
    begins_so = result.sweep[:-1]  # the server takes the beginning of an id for the id
    for name in (begins_so, "last", "a name/that no sweep has", ""):
        optuna.create_study(study_name=name, storage=storage)
        with pytest.raises(DuplicatedStudyError):
            optuna.create_study(study_name=name, storage=storage)
    assert optuna.load_study(study_name=begins_so, storage=storage).trials == []
    assert len(optuna.load_study(study_name=result.sweep, storage=storage).trials) == 3
    at_home = hposvc.optuna.Storage(served.home)
    assert optuna.get_all_study_names(at_home) == optuna.get_all_study_names(storage)


def test_a_storage_says_at_once_that_no_server_answers():
    with pytest.raises(OutOfReach, match="no hposvc server answers"):
        hposvc.optuna.Storage("http://127.0.0.1:9")
