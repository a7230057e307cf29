"""Measurement of the memory that two real updates need on each rank, in fresh processes.

On a GPU: the peak that torch allocated to tensors (torch.cuda.max_memory_allocated). On a CPU: the
peak growth of the process's resident size after it has made the same updates of a tiny model and
loaded the samples. So Python, torch's libraries and samples do not count; freed memory that the C
library keeps does, which is why it is configured to keep little.
"""

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.data import Batch as Samples
from trainables.data import Data, Tensors
from trainables.memory_estimation.truncated_task import truncate, truncate_in_memory
from trainables.monitoring import memory
from trainables.randomness import preserved
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.training import Training
from trainables.vmapped.batch import Batch
from trainables.worker import LocalLink, Worker

UPDATES = 2
WIDTH = 16  # of the tiny model, and half its depth: at most this many ranks can split it
# The C library then returns freed blocks of this size to the system at once.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


class MeasurementFailed(Exception):
    """A process to be measured failed; the message is its last line of output."""


@dataclass(frozen=True)
class MeasuredTrial:
    """A task, its options and its ranks, to be measured."""

    task: Task
    training: Training
    ranks: int
    gpu: bool


@dataclass(frozen=True)
class TinyTask(Task):
    """A tiny model, whose updates load every library that updates need."""

    batch: int = 64

    def build_model(self) -> nn.Module:
        layers = ((nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2 * WIDTH))
        return nn.Sequential(*(layer for pair in layers for layer in pair))

    def load_data(self) -> Data:
        samples = Tensors(torch.zeros(64, WIDTH))
        return Data(samples, samples)

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        outputs: Tensor = model(batch[0])
        return outputs.square()


def measure(trial: MeasuredTrial) -> int:
    """Return the bytes of the rank that needs the most.

    Raises:
        MeasurementFailed: a process failed.
    """
    module = sys.modules[type(trial.task).__module__]
    if PathFinder.find_spec(module.__name__.partition(".")[0]) is None:  # loaded by load_file
        cloudpickle.register_pickle_by_value(module)
    with tempfile.TemporaryDirectory(prefix="hposvc-") as name:
        folder = Path(name)
        (folder / "trial").write_bytes(cloudpickle.dumps((sys.path, trial)))
        with ExitStack() as running:
            children = []
            for rank in range(trial.ranks):
                children.append(running.enter_context(_start_rank(folder, trial, rank)))
                running.callback(children[-1].kill)  # before it is waited for
            _wait_for_ranks(children, folder)
        return max(int((folder / f"taken-{rank}").read_text()) for rank in range(trial.ranks))


def _wait_for_ranks(children: Sequence["subprocess.Popen[bytes]"], folder: Path) -> None:
    """Wait until all ranks have succeeded.

    Raises:
        MeasurementFailed: a rank failed; the message is of the first to fail, since the others may
            have failed because that rank was gone.
    """
    with ThreadPoolExecutor(len(children)) as threads:
        ends = {threads.submit(child.wait): rank for rank, child in enumerate(children)}
        for end in as_completed(ends):
            if end.result() == 0:
                continue
            for child in children:
                child.kill()
            rank, text = ends[end], (folder / f"said-{ends[end]}").read_text(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            last = lines[-1] if lines else f"it ended with {end.result()}"
            raise MeasurementFailed(last if len(children) == 1 else f"rank {rank}: {last}")


def _start_rank(folder: Path, trial: MeasuredTrial, rank: int) -> "subprocess.Popen[bytes]":
    """Start a rank's process, with its output going to a file: a pipe would fill up."""
    code = (
        "import sys; from trainables.memory_estimation.measuring import live; live(*sys.argv[1:])"
    )
    python_path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    variables = {**os.environ, **ENVIRONMENT, "PYTHONPATH": python_path}
    if trial.gpu:
        variables["CUDA_VISIBLE_DEVICES"] = _device(rank)
    with (folder / f"said-{rank}").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(rank)],
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _device(rank: int) -> str:
    """Return the GPU of a rank, among those visible to this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = (
        visible.split(",")
        if visible
        else [str(index) for index in range(torch.cuda.device_count())]
    )
    if rank >= len(devices):
        raise MeasurementFailed(
            f"rank {rank} has no GPU: there are {len(devices)} for this process"
        )
    return devices[rank]


def live(folder: str, rank: str) -> None:
    """Measure one rank in this process, and write its bytes to a file of the folder."""
    code = 1
    try:
        path, trial = cloudpickle.loads((Path(folder) / "trial").read_bytes())
        sys.path[:] = path
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // trial.ranks))
        taken = _measure_rank(trial, int(rank), Path(folder))
        (Path(folder) / f"taken-{rank}").write_text(f"{taken}")
        code = 0
    except Exception:  # noqa: BLE001 - any error is reported to the parent
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once, as our ranks do: gloo's threads can abort an interpreter at exit, and the other
    # ranks, which lose their peer, must fail after this one.
    os._exit(code)


def _measure_rank(trial: MeasuredTrial, rank: int, folder: Path) -> int:
    with _process_group(trial, rank, folder):
        trials = min(trial.training.trials_at_once(), 2)
        tiny = replace(trial.training, float32_modules=(), trials_per_process=trials)
        train = _train if trials == 1 else _train_vmapped
        train(TinyTask(), replace(trial, training=tiny), rank, folder)
        trial.task.load_data()  # most tasks keep what they have read
        before = 0 if trial.gpu else _resident_bytes()
        return train(trial.task, trial, rank, folder) - before


@contextmanager
def _process_group(trial: MeasuredTrial, rank: int, folder: Path) -> Iterator[None]:
    if trial.ranks > 1:
        store = dist.FileStore(str(folder / "store"), trial.ranks)
        kind = "nccl" if trial.gpu else "gloo"
        dist.init_process_group(kind, store=store, rank=rank, world_size=trial.ranks)
    yield


def _train(task: Task, trial: MeasuredTrial, rank: int, folder: Path) -> int:
    """Make the updates and return the peak of memory during them."""
    lone_worker = Worker.alone(folder=folder, training=trial.training)
    worker = replace(lone_worker, rank=rank, world_size=trial.ranks, gpu=trial.gpu)
    with preserved(), prepare(truncate(task, UPDATES), worker) as trainer:
        _resident_bytes()
        memory.reset_peak(worker.device)
        trainer.train_epoch(1)
        peak = memory.measure(worker.device).peak
        trainer.passes.data.close()
    if peak is None:
        raise OSError("this system does not report the peak memory of a process")
    return peak


def _train_vmapped(task: Task, trial: MeasuredTrial, rank: int, folder: Path) -> int:
    """Make the updates of trials training in one process, and return the peak of memory."""
    short = truncate_in_memory(task, UPDATES)
    lone_worker = Worker.alone(until=2, folder=folder, training=trial.training)
    lone_worker = replace(lone_worker, every=2)  # steps: no checkpoint in the first
    with Batch(trial.training.trials_at_once()) as batch:
        for seed in range(batch.most):
            link = LocalLink()
            batch.add(
                short, replace(lone_worker, gpu=trial.gpu, seed=seed, order=1 + seed, link=link)
            )
        _resident_bytes()
        workers = batch.workers
        memory.reset_peak(workers[0].device)
        for result in batch.epoch():
            if result.error is not None:
                raise result.error
        # A report resets the peak, so the first report holds the peak of the updates.
        return round(workers[0].reports[-1].metrics["perf/memory_peak_gb"] * 1e9)


def _resident_bytes() -> int:
    """Return the process's resident size after freeing all memory that can be freed."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than GNU's has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory.measure(torch.device("cpu")).now
