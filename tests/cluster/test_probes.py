"""Probes of this machine, with substitutes for torch and nvidia-smi."""

import json
import multiprocessing
import os
import platform
import time
from types import SimpleNamespace

import pytest
import ray

from cluster import probes
from cluster.node_health import speed_issues

NO_GPU = "print('noise'); print('[[], []]')"
TORCH = 'print(\'["2.13.0", "13.0", 2]\')'


def compared(here=None, gpus=2.0, torch=TORCH, folders=None):
    """Return problems and notes of this machine, compared with that of a driver."""
    here = here or probes.describe(probes.PACKAGES)
    found = probes.compare(here, gpus, torch, 30.0 if "sleep" not in torch else 0.5, folders or {})
    assert json.loads(json.dumps(found)) == {
        **found,
        "problems": [list(problem) for problem in found["problems"]],
    }
    return found["problems"], "; ".join(found["notes"])


def test_a_machine_describes_itself():
    seen = probes.describe((*probes.PACKAGES, "no_such_package"))
    assert (seen["python"], seen["ray"]) == (platform.python_version(), ray.__version__)
    assert seen["packages"]["no_such_package"] is None
    assert len({seen["packages"][name]["origin"] for name in probes.PACKAGES}) == 1


def test_a_node_like_the_driver_has_no_problems(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "LEAST_DISK", 0)
    problems, notes = compared(folders={"storage": str(tmp_path)})
    assert problems == []
    for note in ("torch 2.13.0 (CUDA 13.0, 2 GPU)", f"Ray {ray.__version__}", "GiB for storage"):
        assert note in notes


def other(package):
    """Return a driver's description with another package `cluster`."""
    here = probes.describe(probes.PACKAGES)
    return {**here, "packages": {**here["packages"], "cluster": package}}


@pytest.mark.parametrize(
    ("change", "said", "fatal"),
    [
        ({"here": {**other(None), "ray": "2.0"}}, f"ray {ray.__version__}, here 2.0", True),
        ({"here": {**other(None), "packages": {"nowhere": None}}}, "not there: nowhere", False),
        (
            {"here": other({"origin": "/other/site-packages", "digest": "b" * 8})},
            "here bbbbbbbb in /other/site-packages",
            True,
        ),
        ({"torch": "import nowhere"}, "torch: ModuleNotFoundError: No module named", True),
        ({"torch": "import time; time.sleep(60)"}, "torch: no answer within 0.5 s", True),
        ({"gpus": 3.0}, "Ray has 3 GPU, torch 2.13.0 sees 2", True),
        ({"folders": {"storage": "/no/such"}}, "the folder of the storage is not there", False),
    ],
)
def test_what_is_amiss_is_named(change, said, fatal):
    [(text, remedy, unfit)], _ = compared(**change)
    assert said in text
    assert unfit is fatal
    assert remedy


@pytest.mark.parametrize(
    ("free", "fatal"), [(probes.LEAST_DISK, None), (probes.FULL, False), (probes.FULL - 1, True)]
)
def test_a_disk_that_is_nearly_full_is_told(tmp_path, monkeypatch, free, fatal):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
    problems, _ = compared(folders={"Ray's files": str(tmp_path)})
    assert [unfit for _, _, unfit in problems] == [fatal] * (fatal is not None)
    assert all(text.startswith("0.1 GiB free for Ray's files in") for text, _, _ in problems)


def test_the_digest_is_that_of_the_files(tmp_path, monkeypatch):
    folder = tmp_path / "a_package_of_ours"
    folder.mkdir()
    (folder / "__init__.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = probes.describe(("a_package_of_ours",))
    assert probes.describe(("a_package_of_ours",)) == first
    (folder / "__init__.py").write_text("A = 2\n")
    assert probes.describe(("a_package_of_ours",)) != first


def test_the_last_line_of_a_child_process_is_its_answer():
    assert probes._run_json(NO_GPU, 20.0) == ([[], []], "noise\n[[], []]\n", "")


def test_the_clock_is_the_machine_s():
    assert abs(probes.clock() - time.time()) < 5


def test_a_machine_says_how_quick_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "LEAST_DISK", 0)
    probe = probes.exercise(None, 30.0, {"storage": str(tmp_path)})
    assert [(speed["what"], speed["unit"]) for speed in probe["speeds"]] == [
        ("matmul", "GFLOPS"),
        ("memory", "GB/s"),
    ]
    assert all(speed["value"] > 0.1 and speed["model"] for speed in probe["speeds"])
    assert probe["problems"] == []
    assert probe["notes"][-1].endswith("GiB for storage")


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
    part = {"what": "matmul", "part": "GPU 0", "model": "x", "value": 5.0, "unit": "TFLOPS"}
    code = f"import json; print(json.dumps([[{part}], ['GPU 1: no']]))"
    probe = probes.exercise(code, 30.0, {})
    assert [(text, fatal) for text, _, fatal in probe["problems"]] == [
        ("GPU 1: no", True),
        ("GPU 0: 2 uncorrectable ECC errors since it was reset", True),
        ("GPU 0: its clocks are held down (slowdown)", False),
        ("GPU 1: a row of its memory could not be remapped", True),
    ]
    assert probe["speeds"][-1:] == [part]
    assert "matmul of GPU 0 5 TFLOPS" in probe["notes"]


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
    [(text, _, fatal)] = probe["problems"]
    assert (text, fatal) == (f"the test of its GPUs: {error}", True)


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
    [(text, _, fatal)] = probe["problems"]
    assert (text, fatal) == (f"its GPUs are not tested, torch did not load: {error}", False)


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
    [(text, _, fatal)] = probe["problems"]
    assert (text, fatal) == (f"nvidia-smi: {error}", False)


def test_the_code_that_tries_gpus_runs_where_there_are_none():
    """The code is a string: without a GPU, no other test would find a mistake in it."""
    answer, output, error = probes._run_json(probes.GPUS, 60.0)
    assert error == ""
    assert output.startswith("torch is loaded\n")
    assert len(answer) == 2
