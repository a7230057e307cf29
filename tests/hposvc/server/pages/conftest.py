"""Homes with sweeps, served to a browser without JavaScript."""

import hostile_sweeps
import pytest
import recorded_home
from paged import client

from hposvc import api


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A home with sweeps as a server finds them."""
    return recorded_home.fill(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """A home with odd sweeps."""
    opened = api.Sweeps.open(tmp_path_factory.mktemp("odd"))
    hostile_sweeps.fill(opened)
    return opened


@pytest.fixture(scope="session")
def server(recorded):
    with client(recorded) as served:
        yield served


@pytest.fixture(scope="session")
def odd_server(odd):
    with client(odd) as served:
        yield served
