"""Our training loop beside a bare one, Lightning Fabric and Hugging Face accelerate.

All train the same model on the same data in one process (or one group of processes), round by
round in turn, so what the machine does meanwhile hits all of them. A figure is the median over
rounds of the bare loop's time over the loop's own in the same round: 1 is as fast, 0.5 half as.

    python benchmarks/training.py --model digits --ranks 2
    python benchmarks/training.py --model gpt --device cuda --precision bf16-mixed --compile
"""

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from loops import LOOPS, Loop, Setting
from models import MODELS
from tables import figure, heading, interval, table

from trainables.environment import keep_freed_memory

KINDS = ("seconds", "worked", "losses", "peaks")
PACKAGES = ("torch", "lightning", "accelerate")


def main() -> None:
    """Read the command line, run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="digits")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--updates", type=int, default=20, help="a round")
    parser.add_argument("--batch", type=int, help="samples an update; default: the model's")
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS))
    options = parser.parse_args()
    print(heading(PACKAGES))
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options, Path(folder))
        if options.ranks == 1:
            rounds(0, *arguments)
        else:
            mp.spawn(rounds, arguments, nprocs=options.ranks)
        measured = {kind: np.load(Path(folder) / f"{kind}.npy") for kind in KINDS}
    print(report(options.loops, measured, options.updates))


def rounds(rank: int, options: Any, folder: Path) -> None:
    """Run on one rank; rank 0 writes seconds (loop, round), losses (loop, round) and peaks."""
    keep_freed_memory()  # as a rank does; else page faults and garbage decide which loop is faster
    gc.collect()
    gc.freeze()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.ranks))
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    if options.ranks > 1:
        _meet(rank, options.ranks, folder)
    sizes = {} if options.batch is None else {"batch": options.batch}
    task = MODELS[options.model](updates=options.updates, **sizes)
    setting = Setting(task, rank, options.ranks, device, options.precision, options.compile)
    loops = [LOOPS[name](setting) for name in options.loops]
    measured = _measure(loops, options, device)
    if rank == 0:
        for name, values in zip(KINDS, measured, strict=True):
            np.save(folder / f"{name}.npy", values)
    if options.ranks > 1:
        dist.barrier()
        os._exit(0)  # gloo's threads can abort an interpreter that is being taken down


def _measure(
    loops: Sequence[Loop], options: Any, device: torch.device
) -> tuple[Any, Any, Any, Any]:
    seconds = np.empty((len(loops), options.rounds))
    worked = np.empty_like(seconds)
    losses = np.empty_like(seconds)
    peaks = np.zeros(len(loops))
    for loop in loops:
        loop.round(0)  # what is done once: kernels, buckets, compilation
    for number in range(options.rounds):
        for place in np.roll(np.arange(len(loops)), number):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            start = _now(device, options.ranks)
            busy = time.process_time()
            losses[place, number] = loops[place].round(number + 1)
            worked[place, number] = time.process_time() - busy
            seconds[place, number] = _now(device, options.ranks) - start
            if device.type == "cuda":
                peaks[place] = max(peaks[place], torch.cuda.max_memory_allocated() / 1e9)
    for loop in loops:
        loop.close()
    return seconds, worked, losses, peaks


def _meet(rank: int, ranks: int, folder: Path) -> None:
    """Join the others; the libraries look for torchrun's variables."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)


def _now(device: torch.device, ranks: int) -> float:
    """The time when all ranks have done what they began."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    if ranks > 1:
        dist.barrier()
    return time.perf_counter()


def report(names: Sequence[str], measured: Mapping[str, Any], updates: int) -> str:
    """The table: updates a second, share of the bare loop's in the same round, memory, loss.

    The processor's time is rank 0's; it depends little on what else the machine does.
    """
    bare = names.index("bare") if "bare" in names else 0
    rows = []
    for place, name in enumerate(names):
        seconds, worked = measured["seconds"][place], measured["worked"][place]
        more = np.median(worked) - np.median(measured["worked"][bare])
        peak = measured["peaks"][place]
        rows.append(
            [
                name,
                figure(float(updates / np.median(seconds))),
                _share(measured["seconds"][bare] / seconds),
                _share(measured["worked"][bare] / worked),
                figure(float(1e6 * more / updates), 0),
                figure(float(peak)) if peak else "–",
                figure(float(measured["losses"][place][-1]), 4),
            ]
        )
    head = ["loop", "updates/s", "of bare (95 %)", "of bare, CPU time (95 %)"]
    return table([*head, "CPU us more an update", "peak GB", "last loss"], rows)


def _share(shares: Any) -> str:
    low, high = interval(shares)
    return f"{figure(float(np.median(shares)), 3)} ({figure(low, 3)} – {figure(high, 3)})"


if __name__ == "__main__":
    main()
