"""The command line in its own processes: signals, a second terminal, output of user code."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from hposvc.journal.database import PATIENCE_S

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
SPEC = {
    "name": "gated",
    "trainable": "curves:gated",
    "engine": "local",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 2},
    "parameters": {"x": {"values": [1, 2, 3, 4, 5, 6], "ordered": True}},
    "search": "grid",
    "trials": {"max": 6},
}


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def hposvc(tmp_path, gate, empty_mlflow):
    """Return a function that starts `hposvc` in tests/support, as a process with pipes."""
    removed = ["HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "COLUMNS"]
    removed += ["COVERAGE_PROCESS_CONFIG"]  # a process that is traced is not replaced
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {
        "HPOSVC_HOME": str(tmp_path / "home"),
        "GATE": str(gate),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }

    (tmp_path / "home").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "home" / "mlflow.db")

    def start(*arguments, **variables):
        return subprocess.Popen(
            [sys.executable, "-m", "hposvc", *map(str, arguments)],
            cwd=SUPPORT,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def spec(tmp_path):
    def write(**changes):
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return path

    return write


def until(stream, words):
    """Read lines until one contains these words, and return it."""
    for line in stream:
        if words in line:
            return line
    raise AssertionError(f"never said: {words}")


@pytest.mark.long
def test_ctrl_c_leaves_a_sweep_that_resume_brings_to_its_exact_end(hposvc, spec, gate):
    run = hposvc("run", spec(), "--id", "gated-1", "-o", "json")
    until(run.stderr, "t0003 COMPLETED")
    run.send_signal(signal.SIGINT)
    gate.write_text("")  # a thread can't be killed: it gets to its next report
    out, err = run.communicate()
    assert run.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted; go on with: hposvc resume gated-1"
    status = json.loads(hposvc("status", "gated-1", "-o", "json").communicate()[0])
    assert (status["state"], status["driver"]) == ("INTERRUPTED", "none")

    gate.unlink()
    gate.touch()
    resumed = hposvc("resume", "last", "-o", "json")
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    status = json.loads(out)
    assert status["state"] == "COMPLETED"
    assert (status["trials"]["total"], status["trials"]["completed"]) == (6, 6)
    trials = json.loads(hposvc("trials", "last", "-o", "json").communicate()[0])
    assert sorted(trial["params"]["x"] for trial in trials) == [1, 2, 3, 4, 5, 6]
    assert all(trial["mlflow_run_id"] for trial in trials)


def driver_of(command):
    (driver,) = psutil.Process(command.pid).children()
    return driver


@pytest.mark.parametrize("victim", ["the driver", "the command"])
def test_a_killed_driver_is_replaced_unless_its_command_is_killed(hposvc, spec, gate, victim):
    run = hposvc("run", spec(), "--id", "gated-1", "-o", "json")
    until(run.stderr, "t0003 COMPLETED")
    driver = driver_of(run)
    (driver if victim == "the driver" else run).kill()
    driver.wait(60)
    if victim == "the command":
        status = json.loads(hposvc("status", "gated-1", "-o", "json").communicate()[0])
        assert (status["state"], status["driver"]) == ("INTERRUPTED", "dead")
        return
    until(run.stderr, "SIGKILL ended the driver; another one goes on")
    gate.write_text("")
    out, err = run.communicate()
    assert run.returncode == 0, err
    status = json.loads(out)
    assert (status["state"], status["trials"]["completed"]) == ("COMPLETED", 6)
    trials = json.loads(hposvc("trials", "last", "-o", "json").communicate()[0])
    assert sorted(trial["params"]["x"] for trial in trials) == [1, 2, 3, 4, 5, 6]


def test_drivers_that_crash_before_any_report_are_replaced_no_more_than_twice(hposvc, spec):
    run = hposvc("run", spec(trainable="curves:crashing"), "--id", "crashing-1")
    _, err = run.communicate()
    assert run.returncode == 128 + signal.SIGSEGV
    assert err.count("another one goes on") == 2
    last = "SIGSEGV ended the driver 3 times before any trial got on; hposvc resume crashing-1"
    assert err.splitlines()[-1] == last


@pytest.mark.full
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_a_postgres_that_is_away_can_be_interrupted(hposvc, spec, gate, sent):
    pytest.importorskip("psycopg")
    import postgres_server

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres_server.start())
        except postgres_server.Missing as error:
            pytest.skip(str(error))
        database = {"HPOSVC_DB": postgres_server.create_database(folder, "gone")}
        run = hposvc("run", spec(), "--id", "gated-1", **database)
        until(run.stderr, "t0003 COMPLETED")
        postgres_server.stop(folder)
        until(run.stderr, "the journal does not answer")
        run.send_signal(sent)
        began = time.monotonic()
        gate.write_text("")  # a thread can't be killed: it gets to its next report
        _, err = run.communicate(timeout=50)
        assert run.returncode == 130
        assert err.splitlines()[-1] == "interrupted; go on with: hposvc resume gated-1"
        assert time.monotonic() - began < PATIENCE_S / 2, "it waited for the server to come back"
        postgres_server.go_on(folder)
        ended = hposvc("resume", "gated-1", "-o", "json", **database)
        gate.write_text("")
        status = json.loads(ended.communicate(timeout=50)[0])
        assert (status["state"], status["trials"]["completed"]) == ("COMPLETED", 6)


@pytest.mark.full
def test_debug_raises_what_the_user_raised_and_prints_no_data_but_ours(hposvc, spec):
    ddp = {"workers": 2}
    parts = {"trainable": "curves:unlucky", "resources": ddp, "engine": "ray"}
    run = hposvc("run", spec(**parts), "--debug", "-o", "json")
    out, err = run.communicate()
    assert run.returncode == 3, err
    status = json.loads(out)
    assert (status["trials"]["total"], status["trials"]["failed"]) == (1, 1)
    assert "about to fail" in err
    assert 'curves.py", line' in err
    assert "ZeroDivisionError: x is too small" in err
