import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise

import torch

from trainables.slots import hygiene


def found(before: hygiene.State) -> list[str]:
    return hygiene.difference(before, hygiene.baseline())


def test_an_order_that_leaves_nothing_is_clean():
    before = hygiene.baseline()
    torch.randn(3).sum()
    assert found(before) == []


def test_the_default_dtype_is_seen():
    before = hygiene.baseline()
    torch.set_default_dtype(torch.float64)
    try:
        assert found(before) == ["torch default dtype: was torch.float32, is torch.float64"]
    finally:
        torch.set_default_dtype(torch.float32)


def test_every_torch_global_is_seen():
    before = hygiene.baseline()
    threads = torch.get_num_threads()
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(threads + 1)
    torch.backends.cudnn.benchmark = True
    try:
        assert found(before) == [
            "torch cudnn.benchmark: was False, is True",
            "torch default device: was cpu, is meta",
            "torch deterministic algorithms: was False, is True",
            "torch gradients: was True, is False",
            "torch matmul precision: was highest, is high",
            f"torch threads: was {threads}, is {threads + 1}",
        ]
    finally:
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = False


def test_importing_torch_is_clean_and_changing_it_at_once_is_not():
    code = (
        "from trainables.slots import hygiene; before = hygiene.baseline(); import torch;"
        "print(hygiene.difference(before, hygiene.baseline()));"
        "torch.set_default_dtype(torch.float64);"
        "print(hygiene.difference(before, hygiene.baseline()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        "['torch default dtype: was torch.float32, is torch.float64']",
    ]


def test_a_thread_that_would_keep_the_process_alive_is_named():
    before = hygiene.baseline()
    over = threading.Event()
    kept = threading.Thread(target=over.wait, name="loader")
    service = threading.Thread(target=over.wait, daemon=True)
    kept.start()
    service.start()
    try:
        assert found(before) == ["thread loader runs on"]
    finally:
        over.set()
        kept.join()
        service.join()
    assert found(before) == []


def test_ended_children_that_nobody_waits_for_are_let_be_until_they_are_many():
    """Somebody may still ask how one of them ended; each keeps a process id from all others."""
    before = hygiene.baseline()
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    after = hygiene.baseline()
    assert (after.children, after.unburied) == (before.children, before.unburied + 3)
    said = ["101 child processes have ended that nobody waited for"]
    assert hygiene.difference(before, replace(after, unburied=101)) == said
    assert hygiene.difference(before, replace(after, unburied=100)) == []
    assert [child.wait() for child in children] == [-signal.SIGKILL] * 3
    assert hygiene.baseline().unburied == before.unburied


def test_a_child_process_is_named_until_it_is_gone():
    before = hygiene.baseline()
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert found(before) == [f"child process {child.pid} (sleep) runs on"]
    finally:
        child.kill()
        child.wait()
    assert found(before) == []


def test_environment_and_folder_are_named_and_put_back(tmp_path, monkeypatch):
    before = hygiene.baseline()
    monkeypatch.setenv("HPOSVC_TEST_SECRET", "hunter2")
    monkeypatch.chdir(tmp_path)
    assert found(before) == [
        "environment: HPOSVC_TEST_SECRET",
        f"working folder: was {before.folder}, is {tmp_path}",
    ]
    hygiene.restore(before)
    assert found(before) == []
    assert "HPOSVC_TEST_SECRET" not in os.environ


def test_removed_and_changed_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("HPOSVC_TEST_A", "a")
    monkeypatch.setenv("HPOSVC_TEST_B", "b")
    before = hygiene.baseline()
    del os.environ["HPOSVC_TEST_A"]
    os.environ["HPOSVC_TEST_B"] = "c"
    hygiene.restore(before)
    assert (os.environ["HPOSVC_TEST_A"], os.environ["HPOSVC_TEST_B"]) == ("a", "b")


def test_what_libraries_set_on_import_stays(monkeypatch):
    before = hygiene.baseline()
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "another")
    hygiene.restore(before)
    assert os.environ["KMP_DUPLICATE_LIB_OK"] == "another"
    assert found(before) == []


def test_a_gpu_in_a_state_of_error_is_left_to_nobody(monkeypatch):
    """After an assertion failed there every call raises, so the next trial would die of it."""

    def refuse():
        raise RuntimeError("CUDA error: device-side assert triggered\nmore")

    before = hygiene.baseline()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", refuse)
    (residue,) = hygiene.restore(before)
    assert residue == "the GPU is in a state of error: CUDA error: device-side assert triggered"


def test_small_leaks_of_gpu_memory_add_up_until_they_are_seen():
    """A hundred orders that each keep a little would fill a GPU that looks clean after each."""
    mib = 2**20
    orders = [replace(hygiene.baseline(), device_bytes=60 * count * mib) for count in range(6)]
    seen = [hygiene.difference(one, other) for one, other in pairwise(orders)]
    assert seen == [[], [], [], [], ["300 MiB of GPU memory are still allocated"]]
