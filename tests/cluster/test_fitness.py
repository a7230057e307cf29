import copy
import platform

import pytest
import ray

from cluster import probes
from cluster.fitness import GIB, judge

HERE = {
    "python": "3.11.7",
    "ray": "2.60.0",
    "packages": {
        name: {"origin": "/env/site-packages", "digest": "aaaaaaaa"} for name in probes.PACKAGES
    },
    "torch": None,
    "disks": {},
}
THERE = {
    **HERE,
    "torch": {"version": "2.13.0", "cuda": "13.0", "gpus": 2},
    "disks": {"storage": {"folder": "/mnt/sweeps", "free": 50 * GIB}},
    "clock": (0.3, 0.001),
}


def troubles(**changes):
    there = {**copy.deepcopy(THERE), **changes}
    return judge("node-1", "10.0.0.7", {"CPU": 8.0, "GPU": 2.0}, HERE, there).troubles


def test_a_node_like_the_driver_has_no_troubles():
    found = judge("node-1", "10.0.0.7", {"CPU": 8.0, "GPU": 2.0}, HERE, THERE)
    assert found.troubles == ()
    assert "8 CPU, 2 GPU" in found.text
    assert "50 GiB for storage" in found.text


@pytest.mark.parametrize(
    ("change", "said", "fatal"),
    [
        ({"ray": "2.61.0"}, "ray 2.61.0, here 2.60.0", True),
        ({"python": "3.12.1"}, "python 3.12.1, here 3.11.7", True),
        ({"packages": {**HERE["packages"], "hposvc": None}}, "not there: hposvc", False),
        ({"torch": {"error": "No module named 'torch'"}}, "No module named 'torch'", True),
        ({"torch": {"version": "2.13.0+cpu", "cuda": None, "gpus": 0}}, "Ray has 2 GPU", True),
        ({"disks": {"storage": None}}, "the folder of the storage is not there", False),
        ({"disks": {"storage": {"folder": "/x", "free": GIB}}}, "1.0 GiB free", False),
        ({"clock": (-7.0, 0.1)}, "its clock is 7.0 s behind ours", False),
    ],
)
def test_what_is_amiss_is_named(change, said, fatal):
    [trouble] = troubles(**change)
    assert said in trouble.text
    assert trouble.fatal is fatal
    assert trouble.remedy


def test_another_package_of_our_name_is_told_from_ours():
    theirs = {"origin": "/other/site-packages", "digest": "bbbbbbbb"}
    [trouble] = troubles(packages={**HERE["packages"], "cluster": theirs})
    assert "cluster in /other/site-packages is another than here" in trouble.text


def test_a_clock_is_not_blamed_for_a_slow_answer():
    assert troubles(clock=(3.0, 2.5)) == ()


def test_a_probe_finds_what_this_machine_has(tmp_path):
    folders = {"storage": str(tmp_path), "Ray's files": str(tmp_path / "none")}
    found = probes.examine(probes.PACKAGES, "print('[\"9.9\", null, 0]')", 30.0, folders)
    assert (found["python"], found["ray"]) == (platform.python_version(), ray.__version__)
    assert len({package["origin"] for package in found["packages"].values()}) == 1
    assert found["torch"] == {"version": "9.9", "cuda": None, "gpus": 0}
    assert found["disks"]["storage"]["free"] > 0
    assert found["disks"]["Ray's files"] is None


def test_a_probe_outlives_a_torch_that_does_not_load():
    found = probes.examine((), "import nowhere_to_be_found", 30.0, {})
    assert found["torch"] == {"error": "ModuleNotFoundError: No module named 'nowhere_to_be_found'"}
    found = probes.examine((), "import time; time.sleep(60)", 0.5, {})
    assert "timed out" in found["torch"]["error"]
