import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from trainables.runtime import process_state


def found(before: process_state.State) -> list[str]:
    return process_state.difference(before, process_state.baseline())


def test_an_order_that_leaves_nothing_is_clean():
    before = process_state.baseline()
    torch.randn(3).sum()
    assert found(before) == []


def test_disabled_attention_kernels_and_flushed_denormals_are_seen():
    before = process_state.baseline()
    torch.backends.cuda.enable_math_sdp(False)
    flushes = torch.set_flush_denormal(True)
    try:
        seen = found(before)
    finally:
        torch.backends.cuda.enable_math_sdp(True)
        torch.set_flush_denormal(False)
    assert seen[0] == "torch attention kernels off: was (), is ('math',)"
    assert seen[1:] == ["torch flush denormal: was False, is True"] * flushes
    assert found(before) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("begins", "imports", "changes", "seen"),
    [
        (
            "",
            "torch",
            "torch.set_default_dtype(torch.float64)",
            ["torch default dtype: was torch.float32, is torch.float64"],
        ),
        (
            "import torch",
            "torch._inductor.config, torch._dynamo.config",
            "torch._inductor.config.max_autotune = True; torch._dynamo.config.recompile_limit = 3",
            [
                "torch _dynamo.config.recompile_limit: was 8, is 3",
                "torch _inductor.config.max_autotune: was False, is True",
            ],
        ),
    ],
    ids=["torch", "the compiler"],
)
def test_an_import_is_clean_and_a_setting_that_its_order_changes_is_not(
    begins, imports, changes, seen
):
    shows = "print(process_state.difference(before, process_state.baseline()))"
    lines = [begins, "from trainables.runtime import process_state"]
    lines += ["before = process_state.baseline()", f"import {imports}", shows, changes, shows]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", f"{seen}"]


def test_every_torch_global_is_seen():
    before = process_state.baseline()
    threads = torch.get_num_threads()
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(threads + 1)
    torch.backends.cudnn.benchmark = True
    try:
        assert found(before) == [
            "torch _inductor.config.deterministic: was False, is True",
            "torch cudnn.benchmark: was False, is True",
            "torch default device: was cpu, is meta",
            "torch deterministic algorithms: was False, is True",
            "torch float32 precision: was ('ieee', 'tf32', 'tf32'), is ('tf32', 'tf32', 'tf32')",
            "torch gradients: was True, is False",
            f"torch threads: was {threads}, is {threads + 1}",
        ]
    finally:
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = False


def test_a_thread_that_would_keep_the_process_alive_is_named():
    before = process_state.baseline()
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
    """Somebody may still ask for the exit code of a zombie; but each zombie holds a process id."""
    before = process_state.baseline()
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    after = process_state.baseline()
    assert (after.children, after.zombies) == (before.children, before.zombies + 3)
    changes = ["101 child processes have ended that nobody waited for"]
    assert process_state.difference(before, replace(after, zombies=101)) == changes
    assert process_state.difference(before, replace(after, zombies=100)) == []
    assert [child.wait() for child in children] == [-signal.SIGKILL] * 3
    assert process_state.baseline().zombies == before.zombies


def test_a_child_process_is_named_until_it_is_gone():
    before = process_state.baseline()
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert found(before) == [f"child process {child.pid} (sleep) runs on"]
    finally:
        child.kill()
        child.wait()
    assert found(before) == []


def test_environment_and_folder_are_named_and_put_back(tmp_path, monkeypatch):
    before = process_state.baseline()
    monkeypatch.setenv("HPOSVC_TEST_SECRET", "hunter2")
    monkeypatch.chdir(tmp_path)
    assert found(before) == [
        "environment: HPOSVC_TEST_SECRET",
        f"working folder: was {before.folder}, is {tmp_path}",
    ]
    process_state.restore(before)
    assert found(before) == []
    assert "HPOSVC_TEST_SECRET" not in os.environ


def test_removed_and_changed_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("HPOSVC_TEST_A", "a")
    monkeypatch.setenv("HPOSVC_TEST_B", "b")
    before = process_state.baseline()
    del os.environ["HPOSVC_TEST_A"]
    os.environ["HPOSVC_TEST_B"] = "c"
    process_state.restore(before)
    assert (os.environ["HPOSVC_TEST_A"], os.environ["HPOSVC_TEST_B"]) == ("a", "b")


def test_what_libraries_set_on_import_stays(monkeypatch):
    before = process_state.baseline()
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "another")
    process_state.restore(before)
    assert os.environ["KMP_DUPLICATE_LIB_OK"] == "another"
    assert found(before) == []


def test_a_gpu_in_a_state_of_error_is_left_to_nobody(monkeypatch):
    """After an assertion failed on a GPU, every call raises, so the next trial would fail."""

    def refuse():
        raise RuntimeError("CUDA error: device-side assert triggered\nmore")

    before = process_state.baseline()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", refuse)
    (residue,) = process_state.restore(before)
    assert residue == "the GPU is in a state of error: CUDA error: device-side assert triggered"


def test_unused_memory_is_given_back_that_of_the_host_too(monkeypatch):
    """Pinned memory of a large trial's checkpoint would be missing to all of the machine."""
    given = []
    before = process_state.baseline()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append("device"))
    name = "_host_emptyCache"  # of torch for GPUs
    monkeypatch.setattr(torch._C, name, lambda: given.append("host"), raising=False)
    assert process_state.restore(before) == []
    assert given == ["device", "host"]


@pytest.mark.parametrize(("share", "seen"), [(1.0, True), (0.5, False)])
def test_memory_that_is_not_torch_s_is_seen_where_nobody_else_uses_the_gpu(
    monkeypatch, share, seen
):
    """Leaks of NCCL and cuBLAS are in none of torch's counts."""
    gib, taken = 2**30, [3]
    process_state._other_bytes_at_first.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: gib)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: ((80 - taken[0]) * gib, 80 * gib))
    before = process_state.baseline(share)  # torch has one of the three
    taken[0] = 7
    changes = process_state.difference(before, process_state.baseline(share))
    process_state._other_bytes_at_first.cache_clear()
    message = (
        "4096 MiB more of GPU memory than after the first order are held outside torch's allocator"
    )
    assert changes == ([message] if seen else [])


def test_small_leaks_of_gpu_memory_add_up_until_they_are_seen():
    """A hundred orders that each keep a little would fill a GPU that looks clean after each."""
    mib = 2**20
    orders = [
        replace(process_state.baseline(), device_bytes=60 * count * mib) for count in range(6)
    ]
    seen = [process_state.difference(before, after) for before, after in pairwise(orders)]
    assert seen == [[], [], [], [], ["300 MiB of GPU memory are still allocated"]]
