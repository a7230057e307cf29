"""The command line in this process, in tests/support, and a function that writes its spec."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from command_line import SPEC, run

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def hposvc(tmp_path, monkeypatch, capfd):
    """Return a function that runs the command line in this process, in tests/support."""
    monkeypatch.chdir(SUPPORT)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))

    return partial(run, capfd)


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes the spec with other values at some keys; JSON is YAML too."""

    def write(**changes):
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return path

    return write
