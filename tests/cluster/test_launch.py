"""A connection to a given cluster, whose head may go away."""

import fcntl
import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from cluster import launch
from cluster.launch import DAEMON, KEEPERS, Connection, Unreachable, find_others

# A keeper whose Ray does not start twice, as on a busy machine, then one of no Ray at all.
FICKLE = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with (folder / "tries").open("a") as file:
    file.write("x")
if len((folder / "tries").read_text()) < 3:
    sys.exit("The current node timed out during startup.")
(folder / "address.json").write_text('{"address": "127.0.0.1:1", "mark": "A=1"}')
while not (folder / "end").exists():
    time.sleep(0.01)
"""


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


def test_a_ray_that_nobody_keeps_does_not_run(tmp_path):
    assert launch.own_address(tmp_path / "none") is None
    (tmp_path / launch.ADDRESS).write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1}))
    assert launch.own_address(tmp_path) is None
    with (tmp_path / launch.KEEPER).open("w") as keeper:
        fcntl.flock(keeper, fcntl.LOCK_EX)
        assert launch.own_address(tmp_path) == "127.0.0.1:1"


@pytest.fixture
def fickle(tmp_path, monkeypatch):
    """A folder whose keepers are FICKLE."""
    (tmp_path / "fickle_keeper.py").write_text(FICKLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(launch, "DAEMON", "fickle_keeper")
    yield tmp_path
    (tmp_path / "end").touch()


@pytest.mark.full
def test_a_ray_that_did_not_start_is_started_again(fickle):
    with launch.start(fickle):
        assert launch._await_address(fickle) == {"address": "127.0.0.1:1", "mark": "A=1"}


@pytest.mark.full
def test_a_ray_that_never_starts_is_told_with_its_log(fickle):
    (fickle / "fickle_keeper.py").write_text("raise SystemExit('no room for Ray')")
    with launch.start(fickle), pytest.raises(Unreachable, match=r"did not start .*keeper\.log"):
        launch._await_address(fickle)
    assert (fickle / launch.LOG).read_text().count("no room for Ray") == KEEPERS
