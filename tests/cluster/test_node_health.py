import copy
import multiprocessing
import os
import platform

import pytest
import ray

from cluster import probes
from cluster.node_health import FULL, GIB, NodeHealth, judge, merge_probes, speed_issues

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
    "speeds": [],
    "wrong": [],
    "untested": [],
    "instruments": [],
}


def gpu(**changes):
    """Return the sensor readings of a healthy GPU."""
    return {"gpu": "GPU 0", "uncorrectable": 0, "failing": False, "slowed": [], **changes}


def looked(*values, model="x"):
    """Return the probe of a node with several equal parts."""
    return {
        "speeds": [
            {"what": "matmul", "part": f"GPU {n}", "model": model, "value": value, "unit": "TFLOPS"}
            for n, value in enumerate(values)
        ]
    }


def troubles(**changes):
    there = {**copy.deepcopy(THERE), **changes}
    return judge("node-1", "10.0.0.7", {"CPU": 8.0, "GPU": 2.0}, HERE, there).troubles


def test_a_node_like_the_driver_has_no_troubles():
    health = judge("node-1", "10.0.0.7", {"CPU": 8.0, "GPU": 2.0}, HERE, THERE)
    assert health.troubles == ()
    assert "8 CPU, 2 GPU" in health.text
    assert "50 GiB for storage" in health.text


@pytest.mark.parametrize(
    ("change", "said", "fatal"),
    [
        ({"ray": "2.61.0"}, "ray 2.61.0, here 2.60.0", True),
        ({"packages": {**HERE["packages"], "hposvc": None}}, "not there: hposvc", False),
        ({"torch": {"error": "No module named 'torch'"}}, "No module named 'torch'", True),
        ({"torch": {"version": "2.13.0+cpu", "cuda": None, "gpus": 0}}, "Ray has 2 GPU", True),
        ({"disks": {"storage": None}}, "the folder of the storage is not there", False),
        ({"disks": {"Ray's files": {"folder": "/x", "free": FULL - 1}}}, "0.1 GiB free", True),
        ({"clock": (-7.0, 0.1)}, "its clock is 7.0 s behind ours", False),
        ({"clock": (70.0, 9.0)}, "its clock is 70.0 s before ours", True),
        ({"wrong": ["GPU 1: CUDA error: unknown error"]}, "GPU 1: CUDA error", True),
        ({"instruments": [gpu(uncorrectable=2)]}, "2 uncorrectable ECC errors", True),
        ({"instruments": [gpu(slowed=["thermal slowdown"])]}, "(thermal slowdown)", False),
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
    probe = probes.examine(probes.PACKAGES, "print('[\"9.9\", null, 0]')", 30.0, folders)
    assert (probe["python"], probe["ray"]) == (platform.python_version(), ray.__version__)
    assert len({package["origin"] for package in probe["packages"].values()}) == 1
    assert probe["torch"] == {"version": "9.9", "cuda": None, "gpus": 0}
    assert probe["disks"]["storage"]["free"] > 0
    assert probe["disks"]["Ray's files"] is None


def test_a_probe_outlives_a_torch_that_does_not_load():
    probe = probes.examine((), "import nowhere_to_be_found", 30.0, {})
    assert probe["torch"] == {"error": "ModuleNotFoundError: No module named 'nowhere_to_be_found'"}
    probe = probes.examine((), "import time; time.sleep(60)", 0.5, {})
    assert "no answer within 0.5 s" in probe["torch"]["error"]


def test_why_nothing_should_run_on_a_node_is_what_is_fatal_there():
    there = {**THERE, "clock": (-7.0, 0.1), "instruments": [gpu(uncorrectable=1)], "wrong": ["no"]}
    health = judge("node-1", "10.0.0.7", {}, HERE, there)
    assert health.unfit == "no; GPU 0: 1 uncorrectable ECC errors since it was reset"
    assert judge("node-1", "10.0.0.7", {}, HERE, THERE).unfit == ""
    assert NodeHealth.from_dict(health.to_dict()) == health


def test_what_is_far_slower_than_its_like_is_named():
    behind = speed_issues({"a": looked(100.0, 98.0), "b": looked(101.0, 40.0), "c": looked(99.0)})
    assert {node: len(troubles) for node, troubles in behind.items()} == {"a": 0, "b": 1, "c": 0}
    [trouble] = behind["b"]
    assert trouble.text == "matmul of GPU 1 (x): 40 TFLOPS, the median of its like is 99"
    assert trouble.fatal


def test_a_machine_at_work_is_not_held_against_idle_ones():
    """Other work shares its memory, so the node would be rejected for being in use."""
    at_work = {**looked(30.0), "busy": 0.9}
    assert not any(speed_issues({"a": looked(100.0), "b": looked(99.0), "c": at_work}).values())


def test_of_two_looks_the_higher_speeds_count_and_the_later_instruments():
    first = {**looked(9.0, 80.0), "wrong": ["it hung"]}
    assert merge_probes(first, {**looked(70.0, 8.0), "wrong": []}) == {
        **looked(70.0, 80.0),
        "wrong": [],
    }
    assert merge_probes(looked(), looked(7.0)) == looked(7.0)


def test_a_machine_says_how_quick_it_is(tmp_path):
    probe = probes.exercise(None, 30.0, {"storage": str(tmp_path)})
    assert [(speed["what"], speed["unit"]) for speed in probe["speeds"]] == [
        ("matmul", "GFLOPS"),
        ("memory", "GB/s"),
    ]
    assert all(speed["value"] > 0.1 and speed["model"] for speed in probe["speeds"])
    assert probe["wrong"] == probe["untested"] == probe["instruments"] == []
    assert probe["disks"]["storage"]["free"] > 0


def test_how_quick_a_machine_is_does_not_hang_on_what_else_it_does():
    """Otherwise busy nodes would be taken for broken ones."""
    alone = probes.exercise(None, 30.0, {})
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    try:
        loaded = probes.exercise(None, 30.0, {})
    finally:
        for process in busy:
            process.kill()
            process.join()
    assert not any(speed_issues({"alone": alone, "loaded": loaded}).values())


def spin():
    while True:
        pass


SMI = """#!/bin/sh
cat <<END
<nvidia_smi_log><gpu id="0"><ecc_errors><volatile><sram_uncorrectable_parity>0
</sram_uncorrectable_parity><dram_correctable>7</dram_correctable><dram_uncorrectable>2
</dram_uncorrectable></volatile><aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate>
</ecc_errors><remapped_rows><remapped_row_failure>No</remapped_row_failure></remapped_rows>
<clocks_event_reasons><clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle></clocks_event_reasons></gpu>
<gpu id="1"><ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile>
</ecc_errors><remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows></gpu>
</nvidia_smi_log>
END
"""


def test_the_instruments_of_gpus_are_read(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    speed = looked(5.0)["speeds"]
    probe = probes.exercise(f"import json; print(json.dumps([{speed}, ['GPU 1: no']]))", 30.0, {})
    assert probe["instruments"] == [
        gpu(uncorrectable=2, slowed=["slowdown"]),
        {**gpu(failing=True), "gpu": "GPU 1"},
    ]
    assert (probe["speeds"][-1:], probe["wrong"]) == (speed, ["GPU 1: no"])


LOADED = "import os, time; print('torch is loaded', flush=True); "


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (f"{LOADED}time.sleep(60)", "no answer within 2 s"),
        (f"{LOADED}os.kill(os.getpid(), 11)", "it was ended by SIGSEGV"),
        (f"{LOADED}raise RuntimeError('CUDA is gone')", "RuntimeError: CUDA is gone"),
        (f"{LOADED}os._exit(3)", "it ended with 3"),
        (f"{LOADED}os._exit(0)", "it ended without a result"),
    ],
)
def test_a_test_of_gpus_that_hangs_or_crashes_is_an_error_of_the_gpus(
    tmp_path, monkeypatch, code, error
):
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = probes.exercise(code, 2.0, {})
    assert {speed["part"] for speed in probe["speeds"]} == {"a core"}
    assert probe["wrong"] == [f"the test of its GPUs: {error}"]
    assert (probe["untested"], probe["instruments"]) == ([], [])


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("import time; time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_gpus_are_untested_where_torch_does_not_load(tmp_path, monkeypatch, code, error):
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = probes.exercise(code, 0.5 if "sleep" in code else 30.0, {})
    assert probe["untested"] == [f"its GPUs are not tested, torch did not load: {error}"]
    assert (probe["wrong"], probe["instruments"]) == ([], [])


@pytest.mark.parametrize(
    ("script", "error"),
    [("exec sleep 60", "no answer within 0.5 s"), ("echo NVML >&2; exit 9", "NVML")],
)
def test_sensors_that_cannot_be_read_are_named(tmp_path, monkeypatch, script, error):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(probes, "SENSORS_S", 0.5)
    probe = probes.exercise("print('[[], []]')", 30.0, {})
    assert (probe["wrong"], probe["untested"]) == ([], [f"nvidia-smi: {error}"])


def test_the_code_that_tries_gpus_runs_where_there_are_none():
    """The code is a string: without a GPU, no other test would find a mistake in it."""
    answer, output, error = probes._run_json(probes.GPUS, 60.0)
    assert error == ""
    assert output.startswith("torch is loaded\n")
    assert len(answer) == 2
