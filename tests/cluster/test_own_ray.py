"""This machine's own Ray: found, started again when it does not start, and left to others."""

import fcntl
import json
import shutil
import subprocess
from contextlib import ExitStack

import pytest
from waiting import until

from cluster import own_ray
from cluster.own_ray import KEEPERS, Unreachable, find_others

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


def test_other_rays_of_this_machine_are_found_by_their_addresses(tmp_path):
    raylet = tmp_path / "raylet"
    shutil.copy(shutil.which("cat"), raylet)
    mine, other = "127.0.0.1:1", "127.0.0.1:2"
    (tmp_path / own_ray.ADDRESS).write_text(json.dumps({"address": mine}))
    with ExitStack() as stack:
        for address in (mine, other, other):
            command = [raylet, "--", "-", f"--gcs-address={address}"]
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
        found = until(lambda: other in (found := find_others(tmp_path)) and found)
        assert found.count(other) == 1
        assert mine not in found


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
    monkeypatch.setattr(own_ray, "MODULE", "fickle_keeper")
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
