"""Homes to wreck."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test modules share terminal.py and aftermath.py; specs name trainables of fragile.py.
sys.path.insert(0, str(Path(__file__).parent))

from terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path, empty_mlflow: Path) -> Iterator[Terminal]:
    """A terminal on a fresh home; whatever a failed test leaves running is ended."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(empty_mlflow, home / "mlflow.db")
    opened = Terminal(home)
    yield opened
    opened.sweep_up()
