"""A trainable that measures the memory which two real updates of a Task need on each rank.

On a GPU: the peak that torch allocated to tensors (torch.cuda.max_memory_allocated). On a CPU: the
peak growth of the process's resident size after it has made the same updates of a tiny model and
loaded the samples. So Python, torch's libraries and samples do not count; freed memory that the C
library keeps does, which is why it is told to keep little.
"""

import ctypes
import gc
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables import environment
from trainables.data import Batch as Samples
from trainables.data import Data, Tensors
from trainables.memory_estimation.short_run import GROUP, split
from trainables.memory_estimation.truncated_task import truncate, truncate_in_memory
from trainables.monitoring import memory
from trainables.randomness import preserved
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.vmapped.batch import Batch
from trainables.worker import LocalLink, Worker

TRIALS = f"{GROUP}.trials"  # at once in one process; the slot itself has one order at a time
METRIC = "memory"  # bytes
UPDATES = 2
WIDTH = 16  # of the tiny model, and half its depth: at most this many ranks can split it
KEPT_BYTES = 1 << 16  # freed blocks of this size return to the system at once


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


def train(params: Mapping[str, Any], worker: Worker) -> None:
    """Report the bytes of the rank that needs the most.

    Args:
        params: the fields of the Task, and in the group `brief` its name (`trainable`) and the
            number of `trials` that train at once.
    """
    task, brief = split(params)
    environment.keep_freed_memory(KEPT_BYTES, KEPT_BYTES)
    training = replace(worker.training, trials_per_process=brief["trials"])
    at_once = min(brief["trials"], 2)
    tiny = replace(training, float32_modules=(), trials_per_process=at_once)
    updates = _train if at_once == 1 else _train_vmapped
    updates(TinyTask(), replace(worker, training=tiny))
    task.load_data()  # most tasks keep what they have read
    before = 0 if worker.gpu else _resident_bytes()
    taken = torch.tensor(updates(task, replace(worker, training=training)) - before)
    if worker.world_size > 1:
        taken = taken.to(worker.device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
    worker.report(1, {METRIC: float(taken)})


def _train(task: Task, worker: Worker) -> int:
    """Make the updates and return the peak of memory during them."""
    with preserved(), prepare(truncate(task, UPDATES), worker) as trainer:
        _resident_bytes()
        memory.reset_peak(worker.device)
        trainer.train_steps(1, 1)
        peak = memory.measure(worker.device).peak
        trainer.passes.data.close()
    if peak is None:
        raise OSError("this system does not report the peak memory of a process")
    return peak


def _train_vmapped(task: Task, worker: Worker) -> int:
    """Make the updates of trials training in one process, and return the peak of memory."""
    short, training = truncate_in_memory(task, UPDATES), worker.training
    with (
        tempfile.TemporaryDirectory() as folder,
        Batch(training.trials_at_once()) as batch,
    ):
        alone = Worker.alone(until=2, folder=Path(folder), training=training)
        alone = replace(alone, every=2, gpu=worker.gpu)  # steps: no checkpoint in the first
        for seed in range(batch.most):
            batch.add(short, replace(alone, seed=seed, order=1 + seed, link=LocalLink()))
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
