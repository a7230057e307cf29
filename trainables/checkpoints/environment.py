"""What a trial computes with: how its ranks' environment begins, and a record beside its weights.

Bits depend on it: on the versions, on the kind of processor, on the number of ranks.
"""

import ctypes
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from trainables.worker import Worker

FILE = "environment.json"
PACKAGE = "hposvc"
# Before a rank on a GPU imports torch. Segments that grow leave no gaps between what was freed.
# cuBLAS looks once, as it starts; with these buffers it can do both what is asked to be
# deterministic and what is not, so that a slot serves trials of both kinds.
ON_GPU: Mapping[str, str] = MappingProxyType(
    {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
)
NEWER = {"PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_ALLOC_CONF"}  # torch 2.9 on knows both

# mallopt's parameters (glibc's malloc.h). By itself glibc gives what an update frees
# back to the system, and gets it again page by page: a quarter of a small CNN's time on a CPU.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 256 << 20  # bytes that a process keeps of what it has freed
LARGE = 32 << 20  # bytes from which a piece is got from the system by itself; glibc's limit


def keep_freed() -> None:
    """Let this process keep some memory that it has freed; where there is no glibc, do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGE)


def missing(environment: Mapping[str, str]) -> dict[str, str]:
    """What a rank on a GPU adds to its environment; who has said something else is heeded."""
    return {
        name: value
        for name, value in ON_GPU.items()
        if name not in environment and NEWER.get(name) not in environment
    }


def record(worker: Worker, folder: Path) -> None:
    """Write what this rank computes with into a checkpoint's folder."""
    found = {
        "trial": worker.trial,
        "order": worker.order,
        "seed": worker.seed,
        "world_size": worker.world_size,
        "training": asdict(worker.training),
        **machine(worker.gpu),
    }
    (folder / FILE).write_text(json.dumps(found, indent=1) + "\n")


@cache
def machine(gpu: bool) -> dict[str, str | int | None]:
    """Versions, and the device; what there is none of is None."""
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpu else None
    return {
        PACKAGE: _version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "nccl": nccl,
        "device": torch.cuda.get_device_name(0) if gpu else "cpu",
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _version() -> str | None:
    """Ours; None: it is used from where it is written, and not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
