"""The environment of a trial: variables and memory settings of its ranks, and a record of versions.

The record lies beside the trial's weights, because results depend, in their last bits, on the
versions, the kind of processor and the number of ranks.
"""

import ctypes
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from trainables.worker import Worker

FILE = "environment.json"
PACKAGE = "hposvc"
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
USABLE_SHARE = 0.9
FRACTION_SINCE = (2, 13)  # of torch; an older one may refuse the option
# Set before a rank on a GPU imports torch. Expandable segments leave no gaps between freed blocks.
# cuBLAS reads its variable once, as it starts; with these buffers it serves deterministic trials
# and others, so that a slot may run both kinds. A rank that NCCL ends because a collective took too
# long leaves a record of its collectives.
ON_GPU: Mapping[str, str] = MappingProxyType(
    {
        ALLOCATOR: "expandable_segments:True",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
)
NEWER_NAMES = {ALLOCATOR: "PYTORCH_ALLOC_CONF"}  # from torch 2.9 on, both are read

# mallopt's parameters (glibc's malloc.h). By default glibc returns the memory freed by an update
# to the system, and gets it again page by page: a quarter of a small CNN's time on a CPU.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEEP_BYTES = 256 << 20  # freed bytes that a process keeps
MMAP_BYTES = 32 << 20  # size from which a block gets a mapping of its own; glibc's upper limit


def keep_freed_memory(most: int = KEEP_BYTES, mapped: int = MMAP_BYTES) -> None:
    """Let this process keep some of the memory that it frees; without glibc, do nothing.

    Args:
        most: bytes that it keeps.
        mapped: bytes from which a block has a mapping of its own, which is never kept.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, most)
        mallopt(M_MMAP_THRESHOLD, mapped)


def map_from(size: int) -> None:
    """Give blocks of memory from this size on mappings of their own; without glibc, do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, size)


def gpu_variables(environment: Mapping[str, str], gpu_share: float = 1.0) -> dict[str, str]:
    """Return the variables to add to the environment of a rank on a GPU; those set already win.

    Args:
        gpu_share: the rank's share of the GPU, to which torch's memory is limited.
    """
    variables = dict(ON_GPU)
    if gpu_share < 1:
        version = tuple(int(number) for number in metadata.version("torch").split(".")[:2])
        if version >= FRACTION_SINCE:
            # Each process needs some memory outside torch, for its CUDA context and its kernels.
            variables[ALLOCATOR] += f",per_process_memory_fraction:{USABLE_SHARE * gpu_share:g}"
    return {
        name: value
        for name, value in variables.items()
        if name not in environment and NEWER_NAMES.get(name, name) not in environment
    }


def float32_precision() -> tuple[str, str, str]:
    """Return how GPUs multiply 32-bit numbers: in products, convolutions and recurrent layers.

    The older switches (torch.get_float32_matmul_precision and `allow_tf32`) are read only where
    the newer ones are missing: from torch 2.9 on they raise if somebody has set the newer ones.
    """
    backends = sys.modules["torch"].backends
    cudnn = backends.cudnn
    if hasattr(cudnn, "conv"):
        kinds = (backends.cuda.matmul, cudnn.conv, cudnn.rnn)
        products, convolutions, recurrent = (
            "ieee" if backend.fp32_precision == "none" else str(backend.fp32_precision)
            for backend in kinds
        )
        return products, convolutions, recurrent
    modes = {"highest": "ieee", "high": "tf32", "medium": "bf16"}
    others = "tf32" if cudnn.allow_tf32 else "ieee"
    return modes[sys.modules["torch"].get_float32_matmul_precision()], others, others


def record(worker: Worker, folder: Path) -> None:
    """Write the rank's environment (versions, device, settings) into a checkpoint's folder."""
    entries = {
        "trial": worker.trial,
        "order": worker.order,
        "seed": worker.seed,
        "world_size": worker.world_size,
        "training": asdict(worker.training),
        **machine(worker.gpu),
    }
    (folder / FILE).write_text(json.dumps(entries, indent=1) + "\n")


@cache
def machine(gpu: bool) -> dict[str, str | int | None]:
    """Return the versions in use, and the device; None for those that do not apply."""
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
    """Return hposvc's version; None: it runs from a source folder and is not installed."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
