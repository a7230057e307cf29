"""The command line in this process, and a spec for it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from hposvc.cli.main import main

SUPPORT = Path(__file__).parents[2] / "support"
# Six trials of a grid, which end at once; simulations without trials.max are not sent to MLflow.
SPEC = {
    "name": "valley",
    "project": "tests",
    "tags": {"team": "blue"},
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"values": [1, 2, 3, 4, 5, 6], "ordered": True}, "width": 64},
    "search": "grid",
    "budget": {"wall": "1h"},
}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def hposvc(tmp_path, monkeypatch, capfd):
    """Return a function that runs the command line in this process, in tests/support."""
    monkeypatch.chdir(SUPPORT)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))

    def run(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Answer(left.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes the spec with other values at some keys; JSON is YAML too."""

    def write(**changes):
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return path

    return write
