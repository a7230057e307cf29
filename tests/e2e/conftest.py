"""A user's home and commands on it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 480
NOTHING: Mapping[str, str] = {}

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Complete = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def home(home_with_ray: Path) -> Path:
    """A home whose Ray stays up from command to command."""
    return home_with_ray


@pytest.fixture(scope="module")
def python(home: Path) -> Run:
    """Runs `python ARGUMENTS` on the home; it must end well, unless a code is given."""

    def run(
        *arguments: str, cwd: Path = ROOT, code: int = 0, variables: Mapping[str, str] = NOTHING
    ) -> "subprocess.CompletedProcess[str]":
        environment = {**environment_of(home), **variables}
        ended = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=DEADLINE_S,
            check=False,
            env=environment,
        )
        assert ended.returncode == code, ended.stderr
        return ended

    return run


def environment_of(home: Path) -> dict[str, str]:
    """The environment of commands on a home."""
    ours = {"HPOSVC_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **ours}


@pytest.fixture(scope="module")
def complete(python: Run) -> Complete:
    """Runs a spec of examples/ with these values, of which no trial may fail; its status."""

    def run(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        sets = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        ended = python("-m", "hposvc", "run", f"examples/{name}", *sets, "-o", "json")
        status: dict[str, Any] = json.loads(ended.stdout)
        assert status["state"] == "COMPLETED"
        assert status["trials"]["total"] == values["trials.max"]
        assert status["trials"]["failed"] == 0
        return status

    return run
