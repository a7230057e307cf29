"""A connection to a given cluster, whose head may go away."""

import socket
import time

import pytest
from waiting import until

from cluster import launch
from cluster.launch import Connection
from cluster.own_ray import Unreachable


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(launch, "PROBE_S", 0.02)
    monkeypatch.setattr(launch, "SILENT_S", 0.3)


def test_a_head_that_goes_is_noticed_before_ray_ends_the_driver(caplog):
    with socket.create_server(("127.0.0.1", 0)) as head:
        connection = Connection(f"127.0.0.1:{head.getsockname()[1]}", None)
        look_for(connection, 0.1)
        assert connection.answers
    with pytest.raises(Unreachable, match=r"the head of the cluster at 127\.0\.0\.1:\d+ does not"):
        look_for(connection, 20)
    assert not connection.answers
    assert len(caplog.messages) == 1, "that it does not answer is said at once, and once"


def test_a_head_that_comes_back_costs_a_wait(caplog):
    with socket.create_server(("127.0.0.1", 0)) as head:
        place = head.getsockname()
        connection = Connection(f"127.0.0.1:{place[1]}", None)
    until(lambda: connection.check() or not connection.answers)
    with socket.create_server(place):
        look_for(connection, 0.5)
    assert connection.answers
    assert "answers again" in caplog.messages[-1]


def look_for(connection, seconds):
    """Check the connection repeatedly for some time, as a driver does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        connection.check()
        time.sleep(0.01)
