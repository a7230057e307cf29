"""What a trial computes with. If these fail, memory of GPUs falls into pieces, or bits differ and
nobody can say what was different.
"""

import ctypes
import json
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
from trainables.checkpoints.checkpoint import Saved, verify
from trainables.checkpoints.environment import FILE, missing
from trainables.worker import LocalLink

CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_a_rank_on_a_gpu_begins_with_what_nobody_has_set_otherwise():
    growing = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert missing({}) == growing | CUBLAS
    assert missing({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}) == CUBLAS
    assert missing({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}) == CUBLAS
    assert missing({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}) == growing


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
    place = {"trainable": f"{tmp_path / 'mine.py'}:tells", "training": Training()}
    said = {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    with started(tmp_path, fresh, **place, world_size=1, gpu=True, variables=said) as slot:
        for _ in range(2):
            _, end = slot.order({}, until=1)
            assert (end.failure, end.residues) == (None, ())


FREES = """
import resource, sys
from trainables.checkpoints.environment import keep_freed

if sys.argv[1] == "kept":
    keep_freed()

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
    """A checkpoint that one rank writes for all, and one that every rank writes."""
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
        saved += [each.checkpoint for each in link.reports]
    return saved


def test_each_checkpoint_says_what_it_was_computed_with(on_two_ranks, tmp_path):
    rank_0, rank_1 = on_two_ranks(kept_by, 2, tmp_path)
    assert rank_1 == [None, None]
    [alone] = kept_by(0, 1, tmp_path)
    said = [json.loads((verify(saved) / FILE).read_text()) for saved in (alone, *rank_0)]
    assert [each["training"]["strategy"] for each in said] == ["single", "ddp", "fsdp"]
    assert [each["world_size"] for each in said] == [1, 2, 2]
    assert [each["trial"] for each in said] == ["t0000", "t0000", "t0001"]
    for each in said:
        assert (each["order"], each["seed"], each["device"]) == (4, 7, "cpu")
        assert each["training"]["deterministic"] is True
        assert (each["torch"], each["python"]) == (torch.__version__, platform.python_version())
