"""A connection to a given cluster, whose head may go away."""

import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from cluster import launch
from cluster.launch import DAEMON, Connection, Unreachable, find_others


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
    deadline = time.monotonic() + 20
    while connection.answers:
        assert time.monotonic() < deadline
        connection.check()
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


def test_other_rays_of_this_machine_are_found_by_their_homes_and_processes(tmp_path):
    mine, other = tmp_path / "mine" / "ray", tmp_path / "other" / "ray"
    waiting = "import sys; sys.stdin.read()"
    raylet = tmp_path / "raylet"
    shutil.copy(shutil.which("cat"), raylet)
    commands = [[sys.executable, "-c", waiting, DAEMON, f"{place}"] for place in (mine, other)]
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            for command in (*commands, [f"{raylet}"])
        ]
        found = find_others(mine)
        assert f"that of the home {other.parent}" in found
        assert f"that of the home {mine.parent}" not in found
        assert f"process {started[2].pid}" in found
