"""The command line in processes of its own: signals, a second terminal, what user code prints."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
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
    """Starts `hposvc` in this folder; the answer is a process with pipes."""
    removed = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {
        "HPOSVC_HOME": str(tmp_path / "home"),
        "GATE": str(gate),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }

    (tmp_path / "home").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "home" / "mlflow.db")

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "hposvc", *map(str, arguments)],
            cwd=HERE,
            env=environment,
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
    """Read lines until one holds these words."""
    for line in stream:
        if words in line:
            return line
    raise AssertionError(f"never said: {words}")


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
    assert (status["state"], status["driver"]) == ("RUNNING", "none")

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


def test_stop_from_another_terminal_ends_the_sweep_with_what_it_has(hposvc, spec, gate):
    run = hposvc("run", spec(), "--id", "gated-1")
    until(run.stderr, "t0003 COMPLETED")
    asked = hposvc("stop", "gated").communicate()[0]
    assert f"asked the driver (process {run.pid} on " in asked
    assert json.loads(hposvc("status", "last", "-o", "json").communicate()[0])["driver"] == "alive"
    gate.write_text("")
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert "gated-1 STOPPED (user)" in out
    assert "mlflow ui --backend-store-uri sqlite:///" in out
    assert "has ended: STOPPED" in hposvc("kill", "last").communicate()[0]


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


def test_a_changed_trainable_is_accepted_only_if_asked(hposvc, spec, tmp_path):
    mine = tmp_path / "mine.py"
    source = (HERE / "curves.py").read_text()
    mine.write_text(source)
    run = hposvc("run", spec(trainable=f"{mine}:gated"), "--id", "gated-1")
    until(run.stderr, "t0003 COMPLETED")
    run.kill()
    run.communicate()
    mine.write_text(source.replace('Path(os.environ["GATE"]).read_text()', "pass"))
    shown = hposvc("status", "last").communicate()[0]
    assert "its last driver died; go on with: hposvc resume gated-1" in shown
    refused = hposvc("resume", "gated-1")
    assert "--accept-code" in refused.communicate()[1]
    assert refused.returncode == 2
    accepted = hposvc("resume", "gated-1", "--accept-code", "-o", "json")
    out, err = accepted.communicate()
    assert accepted.returncode == 0, err
    assert json.loads(out)["trials"]["completed"] == 6
