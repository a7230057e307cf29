"""A user's home and commands on it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import launch

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose Ray stays up from command to command."""
    folder = tmp_path_factory.mktemp("home")
    with launch.start(folder / "ray"):
        yield folder
    launch._await_end(folder / "ray")


@pytest.fixture(scope="module")
def python(home: Path) -> Run:
    """Runs `python ARGUMENTS` on the home; it must end well, unless a code is given."""

    def run(*arguments: str, cwd: Path = ROOT, code: int = 0) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "HPOSVC_HOME": str(home), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=DEADLINE_S,
            check=False,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )
        assert ended.returncode == code, ended.stderr
        return ended

    return run
