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
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.batched.batch import Batch
from trainables.data import Batch as Samples
from trainables.data import Data, Tensors
from trainables.fitting.fit import prepare
from trainables.forecasting.excerpt import excerpt, excerpt_in_memory
from trainables.randomness import preserved
from trainables.task import Task
from trainables.training import Training
from trainables.watching import memory
from trainables.worker import LocalLink, Worker

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

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
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
        with ExitStack() as running:
            children = []
            for rank in range(trial.ranks):
                children.append(running.enter_context(_started(folder, trial, rank)))
                running.callback(children[-1].kill)  # before it is waited for
            _await(children, folder)
        return max(int((folder / f"taken-{rank}").read_text()) for rank in range(trial.ranks))


def _await(children: Sequence["subprocess.Popen[bytes]"], folder: Path) -> None:
    """Until all have ended well.

    Raises:
        NotMeasured: one did not; the first that ended so, which the others may have missed.
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
            raise NotMeasured(last if len(children) == 1 else f"rank {rank}: {last}")


def _started(folder: Path, trial: Trial, rank: int) -> "subprocess.Popen[bytes]":
    """A rank's process. What it prints goes to a file: a pipe is full at some time."""
    code = "import sys; from trainables.forecasting.measuring import live; live(*sys.argv[1:])"
    path = os.pathsep.join(str(Path(each).absolute()) for each in sys.path)
    variables = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}
    if trial.gpu:
        variables["CUDA_VISIBLE_DEVICES"] = _device(rank)
    with (folder / f"said-{rank}").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(rank)],
            env=variables,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


def _device(rank: int) -> str:
    """The GPU of a rank, among those that this process sees."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = seen.split(",") if seen else [str(each) for each in range(torch.cuda.device_count())]
    if rank >= len(devices):
        raise NotMeasured(f"rank {rank} has no GPU: there are {len(devices)} for this process")
    return devices[rank]


def live(folder: str, rank: str) -> None:
    """A rank's process: writes down the bytes that it took."""
    code = 1
    try:
        path, trial = cloudpickle.loads((Path(folder) / "trial").read_bytes())
        sys.path[:] = path
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // trial.ranks))
        taken = _measured(trial, int(rank), Path(folder))
        (Path(folder) / f"taken-{rank}").write_text(f"{taken}")
        code = 0
    except Exception:  # noqa: BLE001 - whatever it is, its parent is told
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # At once, as ranks of ours leave: gloo's threads can abort an interpreter that goes, and the
    # other ranks, who miss this one, are to fail after it.
    os._exit(code)


def _measured(trial: Trial, rank: int, folder: Path) -> int:
    with _group(trial, rank, folder):
        company = min(trial.training.trials_at_once(), 2)
        tiny = replace(trial.training, float32_modules=(), batched=company)
        train = _train if company == 1 else _train_company
        train(Tiny(), replace(trial, training=tiny), rank, folder)
        trial.task.load_data()  # most tasks keep what they have read
        before = 0 if trial.gpu else _settled()
        return train(trial.task, trial, rank, folder) - before


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


def _train_company(task: Task, trial: Trial, rank: int, folder: Path) -> int:
    """The same of trials that train at once."""
    short = excerpt_in_memory(task, UPDATES)
    alone = Worker.alone(until=2, folder=folder, training=trial.training)
    alone = replace(alone, every=2)  # steps: no checkpoint in the first
    with Batch(trial.training.trials_at_once()) as batch:
        for seed in range(batch.most):
            link = LocalLink()
            batch.add(short, replace(alone, gpu=trial.gpu, seed=seed, order=1 + seed, link=link))
        _settled()
        workers = batch.workers
        memory.reset_peak(workers[0].device)
        for left in batch.epoch():
            if left.error is not None:
                raise left.error
        # Reports begin a new peak, so that of the updates is in the first of them.
        return round(workers[0].reports[-1].metrics["perf/memory_peak_gb"] * 1e9)


def _settled() -> int:
    """The process's resident size, once all that can be given back is."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than GNU's has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory.measure(torch.device("cpu")).now
