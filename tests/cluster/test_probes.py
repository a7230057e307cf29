"""Probes of this machine, with substitutes for torch and nvidia-smi."""

import json
import multiprocessing
import os
from types import SimpleNamespace

import pytest

from cluster import probes
from cluster.node_health import speed_issues

TORCH = "print('torch 2.13.0 (CUDA 13.0, 2 GPU)'); print('[2, [], []]')"


@pytest.fixture
def _no_sensors(tmp_path, monkeypatch):
    """Hide nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path))


def compared(monkeypatch, here=None, gpus=2, torch=TORCH, folders=None):
    """Return problems and notes of this machine, compared with that of a driver."""
    monkeypatch.setattr(probes, "TORCH_S", 30.0 if "sleep" not in torch else 0.5)
    probe = probes.examine(gpus, folders or {}, here or probes.digest(probes.PACKAGES), torch)
    assert json.loads(json.dumps(probe)) == {
        **probe,
        "problems": [list(problem) for problem in probe["problems"]],
    }
    return probe["problems"], "; ".join(probe["notes"])


def test_packages_are_found_with_their_folder():
    seen = probes.digest((*probes.PACKAGES, "no_such_package"))
    assert seen.keys() == set(probes.PACKAGES)
    assert len({folder for folder, _ in seen.values()}) == 1


@pytest.mark.usefixtures("_no_sensors")
def test_a_node_like_the_driver_has_no_problems(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "LEAST_DISK", 0)
    problems, notes = compared(monkeypatch, folders={"storage": str(tmp_path)})
    assert problems == []
    for note in ("torch 2.13.0 (CUDA 13.0, 2 GPU)", "ours from ", "GiB for storage"):
        assert note in notes


@pytest.mark.parametrize(
    ("change", "said", "fatal"),
    [
        ({"here": {"nowhere": ("/x", "a" * 8)}}, "not there: nowhere", False),
        (
            {"here": {"cluster": ("/other/site-packages", "b" * 8)}},
            "here bbbbbbbb in /other/site-packages",
            True,
        ),
        ({"torch": "import nowhere"}, "torch did not load: ModuleNotFoundError: No module", True),
        ({"torch": "import time; time.sleep(60)"}, "torch did not load: no answer within", True),
        ({"gpus": 3}, "Ray has 3 GPU, torch sees 2", True),
        ({"folders": {"storage": "/no/such"}}, "the folder of the storage is not there", False),
    ],
)
@pytest.mark.usefixtures("_no_sensors")
def test_what_is_amiss_is_named(monkeypatch, change, said, fatal):
    [(text, remedy, unfit)], _ = compared(monkeypatch, **change)
    assert said in text
    assert unfit is fatal
    assert remedy


@pytest.mark.parametrize(
    ("free", "fatal"), [(probes.LEAST_DISK, None), (probes.FULL, False), (probes.FULL - 1, True)]
)
def test_a_disk_that_is_nearly_full_is_told(tmp_path, monkeypatch, free, fatal):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
    _, problems = probes._disks({"Ray's files": str(tmp_path)})
    assert [unfit for _, _, unfit in problems] == [fatal] * (fatal is not None)
    assert all(text.startswith("0.1 GiB free for Ray's files in") for text, _, _ in problems)


def test_the_digest_is_that_of_the_files(tmp_path, monkeypatch):
    folder = tmp_path / "a_package_of_ours"
    folder.mkdir()
    (folder / "__init__.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = probes.digest(("a_package_of_ours",))
    assert probes.digest(("a_package_of_ours",)) == first
    (folder / "__init__.py").write_text("A = 2\n")
    assert probes.digest(("a_package_of_ours",)) != first


def test_a_machine_says_how_quick_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "LEAST_DISK", 0)
    probe = probes.examine(0, {"storage": str(tmp_path)})
    assert [(speed["what"], speed["unit"]) for speed in probe["speeds"]] == [
        ("matmul", "GFLOPS"),
        ("memory", "GB/s"),
    ]
    assert all(speed["value"] > 0.1 and speed["model"] for speed in probe["speeds"])
    assert probe["problems"] == []
    assert probe["notes"][-1].endswith("GiB for storage")


def test_how_quick_a_machine_is_does_not_hang_on_what_else_it_does():
    """Otherwise busy nodes would be taken for broken ones."""
    alone = probes.examine(0, {})
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    try:
        loaded = probes.examine(0, {})
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
    code = f"import json; print('torch'); print(json.dumps([2, [{part}], ['GPU 1: no']]))"
    probe = probes.examine(2, {}, code=code)
    assert [(text, fatal) for text, _, fatal in probe["problems"]] == [
        ("GPU 1: no", True),
        ("GPU 0: 2 uncorrectable ECC errors since it was reset", True),
        ("GPU 0: its clocks are held down (slowdown)", False),
        ("GPU 1: a row of its memory could not be remapped", True),
    ]
    assert probe["speeds"][-1:] == [part]
    assert "matmul of GPU 0 5 TFLOPS" in probe["notes"]


LOADED = "import os, time; print('torch 2.13.0', flush=True); "


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
@pytest.mark.usefixtures("_no_sensors")
def test_a_test_of_gpus_that_hangs_or_crashes_is_an_error_of_the_gpus(monkeypatch, code, error):
    monkeypatch.setattr(probes, "TORCH_S", 2.0)
    probe = probes.examine(1, {}, code=code)
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
@pytest.mark.usefixtures("_no_sensors")
def test_gpus_are_untested_where_torch_does_not_load(monkeypatch, code, error):
    monkeypatch.setattr(probes, "TORCH_S", 0.5 if "sleep" in code else 30.0)
    probe = probes.examine(1, {}, code=code)
    [(text, _, fatal)] = probe["problems"]
    assert (text, fatal) == (f"torch did not load: {error}", False)


@pytest.mark.parametrize(
    ("script", "error"),
    [("exec sleep 60", "no answer within 0.5 s"), ("echo NVML >&2; exit 9", "NVML")],
)
def test_sensors_that_cannot_be_read_are_named(tmp_path, monkeypatch, script, error):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(probes, "SENSORS_S", 0.5)
    probe = probes.examine(1, {}, code=TORCH)
    [(text, _, fatal)] = probe["problems"]
    assert (text, fatal) == (f"nvidia-smi: {error}", False)


def test_the_code_that_tries_gpus_runs_where_there_are_none():
    """The code is a string: without a GPU, no other test would find a mistake in it."""
    torch, speeds, problems = probes._try_torch(0, probes.GPUS, strict=True)
    assert torch.startswith("torch 2.")
    assert (speeds, problems) == ([], [])
