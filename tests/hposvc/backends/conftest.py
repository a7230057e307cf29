"""Fixtures: a home whose Ray stays up, and its sweeps."""

import pytest

from hposvc import api


@pytest.fixture(scope="module")
def home(home_with_ray):
    """Return a home whose Ray stays up between tests, as a second driver would keep it."""
    return home_with_ray


@pytest.fixture
def sweeps(home):
    """Return the sweeps of that home."""
    return api.Sweeps.open(home)
