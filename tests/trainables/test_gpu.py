"""Tests of a rank on a GPU, without Ray. If these fail, GPUs learn other things than CPUs do.

They need one CUDA device, and are skipped without it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from trainables import Training, Worker
from trainables.parallel.ddp import Ddp
from trainables.parallel.group import RankStore
from trainables.trainer import fit
from trainables.zoo.digits import DigitsCNN

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

ROOT = Path(__file__).parents[2]
GIB, MIB = 2**30, 2**20
# Without dropout, whose draws differ between devices; SGD, which does not divide by tiny numbers.
PLAIN = DigitsCNN(lr=0.02, optimizer="sgd", dropout=0.0, width=16)
FULL = DigitsCNN(width=16)  # dropout and AdamW
PRECISIONS = ["32-true", "bf16-mixed", "16-mixed", "64-true"]
LOSSES = ("train/loss", "val/loss")
LEARNED = (*LOSSES, "val/accuracy")

Curve = list[dict[str, float]]


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use deterministic kernels, as users do who want equal bits in every run.

    Warnings replace errors: the network's pools do not overlap, so they add up nothing.
    """
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@contextmanager
def group(order: int = 1) -> Iterator[None]:
    """Provide the process group of a slot's order: here of one rank, on NCCL."""
    rank_store = RankStore.open("127.0.0.1", 1, gpu=True)
    with rank_store.group(order):
        yield
    rank_store.drop()


def on(device: str, until: int = 3, folder: Path | None = None, **training) -> Worker:
    """Return a rank on this device."""
    worker = Worker.alone(until=until, folder=folder, training=Training(**training))
    return replace(worker, gpu=device == "cuda")


def curve(worker: Worker) -> Curve:
    """Return the metrics of each step, without speed and memory, which differ between runs."""
    return [
        {name: value for name, value in report.metrics.items() if name.startswith(LEARNED)}
        for report in worker.reports
    ]


def learned(task: DigitsCNN, worker: Worker) -> Curve:
    task.train(worker)
    return curve(worker)


def going_on(worker: Worker, until: int) -> Worker:
    """Return the next order, which resumes from the last checkpoint, on the same link."""
    start = worker.reports[-1].checkpoint
    return replace(worker, order=2, first=worker.until + 1, until=until, start=start)


def assert_close(found: Curve, expected: Curve, rel: float) -> None:
    assert len(found) == len(expected)
    for metrics, other in zip(found, expected, strict=True):
        for name in LOSSES:
            assert metrics[name] == pytest.approx(other[name], rel=rel)


# What is learned


@pytest.mark.parametrize(
    ("precision", "rel"),
    # Convolutions in 32-true may use TF32, PyTorch's default: 10 bits of mantissa.
    [("64-true", 1e-9), ("32-true", 2e-3), ("16-mixed", 0.05), ("bf16-mixed", 0.05)],
)
def test_the_gpu_learns_what_the_cpu_learns(precision, rel):
    exact = learned(PLAIN, on("cpu", precision="64-true"))
    reports = learned(PLAIN, on("cuda", precision=precision))
    assert_close(reports, exact, rel)
    assert reports[-1]["train/loss"] < 0.5 * reports[0]["train/loss"]


def test_weights_samples_and_optimizer_are_on_the_gpu_in_the_stored_format():
    """A tensor left on the CPU would be copied at every update, or stop the trial."""
    with fit.prepare(FULL, on("cuda", precision="64-true")) as session:
        session.train_steps(1, 1)
        slots = [
            value
            for state in session.state.optimizer.state.values()
            for name, value in state.items()
            if name != "step"
        ]
        weights = [*session.state.model.parameters()]
        tensors = [*weights, *session.passes.data.train.columns, *slots]
    assert {tensor.device for tensor in tensors} == {torch.device("cuda", 0)}
    assert {tensor.dtype for tensor in weights} == {torch.float64}
    assert {slot.dtype for slot in slots} == {torch.float64}


@pytest.mark.parametrize("precision", ["64-true", "32-true"])
@pytest.mark.usefixtures("deterministic")
def test_ddp_over_nccl_learns_what_a_single_rank_learns(monkeypatch, precision):
    single = learned(PLAIN, on("cuda", precision=precision, clip=1.0))
    # A world of one would train alone; two ranks on one GPU are refused by NCCL.
    monkeypatch.setattr(fit, "choose", lambda worker, plan: Ddp(worker))
    with group():
        assert dist.get_backend() == "nccl"
        worker = on("cuda", strategy="ddp", precision=precision, clip=1.0)
        reports = learned(PLAIN, worker)
    assert_close(reports, single, 1e-12 if precision == "64-true" else 1e-6)


def test_an_order_that_fails_over_nccl_leaves_no_group_and_the_next_order_has_one():
    """Destroying it could wait for ever for the other ranks, so it is aborted."""

    def fail_after_a_collective():
        dist.all_reduce(torch.ones(2, device="cuda"))
        raise ValueError("bad batch")

    rank_store = RankStore.open("127.0.0.1", 1, gpu=True)
    with pytest.raises(ValueError, match="bad batch"), rank_store.group(1):
        fail_after_a_collective()
    assert not dist.is_initialized()
    with rank_store.group(2):
        ones = torch.ones(2, device="cuda")
        dist.all_reduce(ones)
        assert ones.tolist() == [1.0, 1.0]
    rank_store.drop()


# Checkpoints


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.usefixtures("deterministic")
def test_a_resumed_trial_goes_on_bit_by_bit(tmp_path, precision):
    """With dropout: the GPU's generator must not depend on what an order drew before."""
    uninterrupted = learned(
        FULL, on("cuda", until=4, folder=tmp_path / "whole", precision=precision)
    )
    half = replace(on("cuda", until=2, folder=tmp_path / "parts", precision=precision), total=4)
    FULL.train(half)
    FULL.train(going_on(half, until=4))
    assert curve(half) == uninterrupted


@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars"])
def test_a_checkpoint_of_one_device_goes_on_on_the_other(tmp_path, first, second, optimizer):
    """People train on a GPU, and look at the best model on a laptop."""
    task = replace(PLAIN, optimizer=optimizer, lr=0.002)
    uninterrupted = learned(
        task, on("cpu", until=4, folder=tmp_path / "whole", precision="64-true")
    )
    half = replace(on(first, until=2, folder=tmp_path / "parts", precision="64-true"), total=4)
    task.train(half)
    task.train(replace(going_on(half, until=4), gpu=second == "cuda"))
    assert_close(curve(half), uninterrupted, 1e-6)


def test_a_restored_optimizer_keeps_its_clock_where_a_fresh_one_has_it(tmp_path):
    """AdamW counts on the CPU: the host would wait for a GPU's count, per weight and update."""
    worker = on("cuda", until=1, folder=tmp_path)
    FULL.train(worker)
    with fit.prepare(FULL, worker) as fresh:
        fresh.train_steps(1, 1)
    with fit.prepare(FULL, replace(worker, start=worker.reports[0].checkpoint)) as restored:
        clocks = [
            {state["step"].device for state in session.state.optimizer.state.values()}
            for session in (fresh, restored)
        ]
    assert clocks[0] == clocks[1]


# What an order leaves behind


def test_a_first_order_of_a_process_is_clean_in_every_precision_and_over_nccl():
    """Contexts, handles and workspaces stay without being leaks; the slot must not be replaced."""
    code = (
        "import torch; from dataclasses import replace;"
        "from trainables import Training, Worker; from trainables.trainer import fit;"
        "from trainables.runtime import process_state;"
        "from trainables.parallel.ddp import Ddp; from trainables.parallel.group import RankStore;"
        "from trainables.zoo.digits import DigitsCNN\n"
        "before = process_state.baseline()\n"
        f"for precision in {PRECISIONS}:\n"
        "    worker = Worker.alone(until=2, training=Training(precision=precision))\n"
        "    DigitsCNN(width=128).train(replace(worker, gpu=True))\n"
        "    print(precision, process_state.difference(before, process_state.baseline()))\n"
        "fit.choose = lambda worker, plan: Ddp(worker)\n"
        "store = RankStore.open('127.0.0.1', 1, gpu=True)\n"
        "with store.group(1):\n"
        "    DigitsCNN(width=128).train(replace(Worker.alone(until=2), gpu=True))\n"
        "after = process_state.baseline(keeps_group=store.keeps_group)\n"
        "print('nccl', process_state.difference(before, after))"
    )
    assert fresh_process(code).splitlines() == [f"{name} []" for name in [*PRECISIONS, "nccl"]]


# Random numbers


def fresh_process(code: str, *arguments: str, **variables: str) -> str:
    """Run code in a new Python process, and return its output."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


# What the runtime does there alone


def test_watching_says_how_much_of_the_gpu_is_used():
    metrics = reported(FULL, on("cuda", until=2, precision="bf16-mixed"))[-1]
    assert metrics["perf/forward_ms"] > 0
    assert 0 < metrics["perf/memory_gb"] <= metrics["perf/memory_peak_gb"]
    assert metrics["perf/memory_peak_gb"] <= metrics["perf/memory_reserved_gb"]
    assert 0 < metrics.get("perf/mfu", 0.5) < 1  # absent: its peak is not known


def test_memory_that_runs_out_is_met_by_smaller_micro_batches():
    """The activations of the whole batch really do not fit into the allowed share of memory."""
    share = (torch.cuda.memory_reserved() + 400 * MIB) / torch.cuda.mem_get_info()[1]
    wide = DigitsCNN(width=256, layers=3, batch=1437, dropout=0.0, optimizer="sgd")
    small = reported(wide, on("cuda", until=1, memory_fraction=share))[0]
    assert small["train/accumulate"] > 1
    full_batch = reported(wide, on("cuda", until=1))[0]
    assert small["train/loss"] == pytest.approx(full_batch["train/loss"], rel=1e-4)


def test_deterministic_training_gives_equal_bits():
    first, second = (learned(FULL, on("cuda", deterministic=True)) for _ in range(2))
    assert first == second


def reported(task: DigitsCNN, worker: Worker) -> Curve:
    """Return all of its reports."""
    task.train(worker)
    return [report.metrics for report in worker.reports]
