"""A home whose Ray stays up, and its sweeps, whose trainables are the toys of this folder."""

from pathlib import Path

import pytest

from cluster import launch
from hposvc import api

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home whose Ray stays up between tests, as a second driver would keep it."""
    folder = tmp_path_factory.mktemp("home")
    with launch.start(folder / "ray"):
        yield folder
    launch._await_end(folder / "ray")


@pytest.fixture
def sweeps(home, monkeypatch):
    """The sweeps of that home."""
    monkeypatch.syspath_prepend(str(HERE))
    return api.Sweeps.open(home)
