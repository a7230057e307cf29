"""What two real updates take of the memory of each rank, in fresh processes.

On a GPU: the most that torch has given to tensors (torch.cuda.max_memory_allocated). On a CPU: by
how much the process's resident size grows at most, over what it is once it has made the same
updates of a tiny model and loaded the samples. So neither Python, torch's libraries nor samples
count; what the C library keeps of freed memory does, which is why it is told to keep little.
"""

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.data import Batch, Data, Tensors
from trainables.fitting.fit import prepare
from trainables.forecasting.excerpt import excerpt
from trainables.randomness import preserved
from trainables.task import Task
from trainables.training import Training
from trainables.watching import memory
from trainables.worker import Worker

UPDATES = 2
WIDTH = 16  # of the tiny model, and half its depth: up to so many ranks split it
# Of the C library: give freed memory of this size back at once.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


class NotMeasured(Exception):
    """A process that was to be measured broke off; the message is its last line."""


@dataclass(frozen=True)
class Trial:
    """What to measure."""

    task: Task
    training: Training
    ranks: int
    gpu: bool


@dataclass(frozen=True)
class Tiny(Task):
    """A model of no size, whose updates load all that updates need."""

    batch: int = 64

    def build_model(self) -> nn.Module:
        layers = ((nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(2 * WIDTH))
        return nn.Sequential(*(layer for pair in layers for layer in pair))

    def load_data(self) -> Data:
        samples = Tensors(torch.zeros(64, WIDTH))
        return Data(samples, samples)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        found: Tensor = model(batch[0])
        return found.square()


def measure(trial: Trial) -> int:
    """Bytes of the rank that takes most.

    Raises:
        NotMeasured: a process broke off.
    """
    with tempfile.TemporaryDirectory(prefix="hposvc-") as name:
        folder = Path(name)
        (folder / "trial").write_bytes(cloudpickle.dumps((sys.path, trial)))
        children = [_started(folder, trial, rank) for rank in range(trial.ranks)]
        try:
            said = [child.communicate() for child in children]
        finally:
            for child in children:
                child.kill()
    for child, (_, errors) in zip(children, said, strict=True):
        if child.returncode:
            lines = [line for line in errors.splitlines() if line.strip()]
            raise NotMeasured(lines[-1] if lines else f"it ended with {child.returncode}")
    return max(int(out.splitlines()[-1]) for out, _ in said)


def _started(folder: Path, trial: Trial, rank: int) -> "subprocess.Popen[str]":
    code = "import sys; from trainables.forecasting.measuring import live; live(*sys.argv[1:])"
    path = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    variables = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}
    if trial.gpu:
        variables["CUDA_VISIBLE_DEVICES"] = _device(rank)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(rank)],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _device(rank: int) -> str:
    """The GPU of a rank, among those that this process sees."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = seen.split(",") if seen else [str(each) for each in range(torch.cuda.device_count())]
    if rank >= len(devices):
        raise NotMeasured(f"rank {rank} has no GPU: there are {len(devices)} for this process")
    return devices[rank]


def live(folder: str, rank: str) -> None:
    """A rank's process: prints the bytes that it took."""
    path, trial = cloudpickle.loads((Path(folder) / "trial").read_bytes())
    sys.path[:] = path
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // trial.ranks))
    print(_measured(trial, int(rank), Path(folder)), flush=True)  # noqa: T201 - to its parent
    os._exit(0)  # as ranks of ours leave: gloo's threads can abort an interpreter that goes


def _measured(trial: Trial, rank: int, folder: Path) -> int:
    with _group(trial, rank, folder):
        tiny = replace(trial.training, float32_modules=())
        _train(Tiny(), replace(trial, training=tiny), rank, folder)
        trial.task.load_data()  # most tasks keep what they have read
        before = 0 if trial.gpu else _settled()
        return _train(trial.task, trial, rank, folder) - before


@contextmanager
def _group(trial: Trial, rank: int, folder: Path) -> Iterator[None]:
    if trial.ranks > 1:
        store = dist.FileStore(str(folder / "store"), trial.ranks)
        kind = "nccl" if trial.gpu else "gloo"
        dist.init_process_group(kind, store=store, rank=rank, world_size=trial.ranks)
    yield


def _train(task: Task, trial: Trial, rank: int, folder: Path) -> int:
    """Make the updates; returns the most memory during them."""
    alone = Worker.alone(folder=folder, training=trial.training)
    worker = replace(alone, rank=rank, world_size=trial.ranks, gpu=trial.gpu)
    with preserved(), prepare(excerpt(task, UPDATES), worker) as session:
        _settled()
        memory.reset_peak(worker.device)
        session.train_epoch(1)
        most = memory.measure(worker.device).peak
        session.passes.data.close()
    if most is None:
        raise OSError("this system does not tell how much memory a process took at most")
    return most


def _settled() -> int:
    """The process's resident size, once all that can be given back is."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than GNU's has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory.measure(torch.device("cpu")).now
