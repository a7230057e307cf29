"""This machine's own Ray: found, started again when it does not start, and left to others."""

import fcntl
import json
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest

from cluster import own_ray
from cluster.own_ray import DAEMON, KEEPERS, Unreachable, find_others

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
    assert own_ray.own_address(tmp_path / "none") is None
    (tmp_path / own_ray.ADDRESS).write_text(json.dumps({"address": "127.0.0.1:1", "pid": 1}))
    assert own_ray.own_address(tmp_path) is None
    with (tmp_path / own_ray.KEEPER).open("w") as keeper:
        fcntl.flock(keeper, fcntl.LOCK_EX)
        assert own_ray.own_address(tmp_path) == "127.0.0.1:1"


@pytest.fixture
def fickle(tmp_path, monkeypatch):
    """A folder whose keepers are FICKLE."""
    (tmp_path / "fickle_keeper.py").write_text(FICKLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(own_ray, "DAEMON", "fickle_keeper")
    yield tmp_path
    (tmp_path / "end").touch()


@pytest.mark.full
def test_a_ray_that_did_not_start_is_started_again(fickle):
    with own_ray.start(fickle):
        assert own_ray.await_address(fickle) == {"address": "127.0.0.1:1", "mark": "A=1"}


@pytest.mark.full
def test_a_ray_that_never_starts_is_told_with_its_log(fickle):
    (fickle / "fickle_keeper.py").write_text("raise SystemExit('no room for Ray')")
    with own_ray.start(fickle), pytest.raises(Unreachable, match=r"did not start .*keeper\.log"):
        own_ray.await_address(fickle)
    assert (fickle / own_ray.LOG).read_text().count("no room for Ray") == KEEPERS
