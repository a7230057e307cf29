"""The environment of a trial. If these fail, GPU memory is fragmented, or results differ in their
last bits and nobody can say why.
"""

import ctypes
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tasks import Deep
from two_ranks import fresh, started

from trainables import Training, Worker
from trainables.environment import FILE, gpu_variables
from trainables.storage.checkpoint import Saved, verify
from trainables.worker import LocalLink

CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_a_rank_on_a_gpu_begins_with_what_nobody_has_set_otherwise():
    growing = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    others = CUBLAS | {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    assert gpu_variables({}) == growing | others
    assert gpu_variables({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}) == others
    assert gpu_variables({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}) == others
    assert (
        gpu_variables({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}).keys()
        == (growing | others).keys() - CUBLAS
    )


def test_what_is_missing_is_found_in_the_environment_itself(monkeypatch):
    """os.environ refuses keys that are not text."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert CUBLAS.items() <= gpu_variables(os.environ).items()


def test_a_rank_on_half_a_gpu_takes_no_more_than_that_of_its_memory():
    """Its neighbour would run out of memory, and the neighbour's configuration be blamed."""
    allocator = gpu_variables({}, gpu_share=0.5)["PYTORCH_CUDA_ALLOC_CONF"]
    assert allocator == "expandable_segments:True,per_process_memory_fraction:0.45"


TELLS = """
import os, sys
assert "torch" not in sys.modules
assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"

def tells(params, worker):
    worker.report(1, {"loss": 0.0})
"""


def test_that_is_set_when_the_user_s_code_is_imported_and_not_taken_for_its_doing(tmp_path):
    (tmp_path / "mine.py").write_text(TELLS)
    settings = {"trainable": f"{tmp_path / 'mine.py'}:tells", "training": Training()}
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    with started(tmp_path, fresh, **settings, world_size=1, gpu=True, variables=variables) as slot:
        for _ in range(2):
            _, end = slot.order({}, until=1)
            assert (end.kind, end.leaks) == ("ended", ())


FREES = """
import resource, sys
from trainables.environment import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def faults():
    # Neither piece alone stays with the C library: one is large, the other lies at the heap's end.
    for size in (1 << 20, 100 << 10):
        pieces = [bytearray(size) for _ in range(8)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

faults()
start = faults()
for _ in range(20):
    last = faults()
print(last - start)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_a_rank_gets_memory_back_without_asking_the_system():
    def faults(how: str) -> int:
        ran = subprocess.run(
            [sys.executable, "-c", FREES, how], capture_output=True, text=True, check=True
        )
        return int(ran.stdout)

    assert faults("kept") < 200 < 2000 < faults("given back")


def kept_by(rank: int, ranks: int, folder: Path) -> list[Saved]:
    """Return a checkpoint written by one rank for all, and one written by every rank."""
    saved = []
    for number, name in enumerate(["single"] if ranks == 1 else ["ddp", "fsdp"]):
        training = Training(name, deterministic=True, precision="64-true")
        worker = replace(
            Worker.alone(folder=folder / name, seed=7, training=training),
            rank=rank,
            world_size=ranks,
            trial=f"t000{number}",
            order=4,
            link=(link := LocalLink()),
        )
        Deep().train(worker)
        saved += [report.checkpoint for report in link.reports]
    return saved


def test_each_checkpoint_says_what_it_was_computed_with(on_two_ranks, tmp_path):
    rank_0, rank_1 = on_two_ranks(kept_by, 2, tmp_path)
    assert rank_1 == [None, None]
    [alone] = kept_by(0, 1, tmp_path)
    records = [json.loads((verify(saved) / FILE).read_text()) for saved in (alone, *rank_0)]
    assert [record["training"]["strategy"] for record in records] == ["single", "ddp", "fsdp"]
    assert [record["world_size"] for record in records] == [1, 2, 2]
    assert [record["trial"] for record in records] == ["t0000", "t0000", "t0001"]
    for record in records:
        assert (record["order"], record["seed"], record["device"]) == (4, 7, "cpu")
        assert record["training"]["deterministic"] is True
        assert (record["torch"], record["python"]) == (torch.__version__, platform.python_version())
