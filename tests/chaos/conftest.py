"""Homes to wreck."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

# Test modules share terminal.py and aftermath.py; specs name trainables of fragile.py.
sys.path.insert(0, str(Path(__file__).parent))

from terminal import Terminal


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: to make them takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def terminal(tmp_path: Path, empty_mlflow: Path) -> Iterator[Terminal]:
    """A terminal on a fresh home; whatever a failed test leaves running is ended."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(empty_mlflow, home / "mlflow.db")
    opened = Terminal(home)
    yield opened
    opened.sweep_up()
