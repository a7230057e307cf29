"""The state of a rank's process, and the changes that an order leaves behind in it.

`restore` undoes the changes that can be undone exactly (environment, working folder). If
`difference` still finds changes after that, the slot starts its ranks afresh.
"""

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import psutil

from trainables.environment import float32_precision
from trainables.programs.process import GUARD

# Set once by libraries when they are imported; removing them would be wrong.
SET_BY_IMPORTS = frozenset(
    {
        "CUDA_MODULE_LOADING",  # torch.cuda
        "KMP_DUPLICATE_LIB_OK",  # scikit-learn
        "KMP_INIT_AT_FORK",  # scikit-learn
        "TORCHINDUCTOR_CACHE_DIR",  # torch.compile
        "TRITON_CACHE_DIR",  # torch.compile
    }
)
PR_SET_CHILD_SUBREAPER = 36
# Python's own service processes keep nothing of an order, and a server is kept on purpose: the
# guards of all other programs end with their orders.
SERVICES = ("multiprocessing.resource_tracker", "loky.backend.resource_tracker", f"{GUARD}")
MAX_ZOMBIES = 100  # each zombie holds a process id
# Bytes of a GPU that a process may keep allocated between orders: cuBLAS keeps a workspace of
# 32 MiB for each thread and stream that multiplies; 65 MiB were seen on an H200 after a small
# network.
DEVICE_SLACK = 256 * 2**20
# Bytes that NCCL, CUDA's kernels and libraries may hold; they grow with the kinds of orders served.
OTHER_SLACK = 2 * 2**30
COMPILER = ("_dynamo.config", "_inductor.config", "_functorch.config")  # modules of settings
# torch's globals right after its import; the number of threads depends on the machine.
FRESH_TORCH: Mapping[str, object] = MappingProxyType(
    {
        "default dtype": "torch.float32",
        "default device": "cpu",
        "gradients": True,
        "autocast": False,
        "anomaly detection": False,
        "deterministic algorithms": False,
        "float32 precision": ("ieee", "tf32", "tf32"),
        "cudnn.enabled": True,
        "cudnn.benchmark": False,
        "cudnn.deterministic": False,
        "attention kernels off": (),
        "flush denormal": False,
        "process group": False,
    }
)


@dataclass(frozen=True)
class State:
    """The parts of a process's state by which one order could affect the next."""

    folder: str
    environment: Mapping[str, str]
    threads: Mapping[int, str]  # names of the non-daemon threads, by identity
    children: Mapping[int, str] = field(default_factory=dict)  # names, by process id
    zombies: int = 0  # children that have ended and that nobody has waited for
    torch: Mapping[str, object] = field(default_factory=dict)  # empty: never imported
    device_bytes: int = 0  # allocated by tensors on the GPU, less those before the first order
    other_bytes: int = 0  # of the GPU outside torch's allocator, less those after the first order


def become_subreaper() -> None:
    """Become the parent of orphaned descendants of this process, so that they are found (Linux).

    Ray has an option for this, but then its processes ignore SIGCHLD: every program that they run
    seems to have ended with 0 (measured: Ray 2.60).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def baseline(gpu_share: float = 1.0, keeps_group: bool = False) -> State:
    """Return the process's current state; takes under 0.1 ms without children, a GPU and a
    compiler (with torch.compile: under 2 ms).

    Args:
        gpu_share: this process's share of its GPU; on a shared GPU, nobody knows which process
            holds the memory outside torch's allocator.
        keeps_group: whether a process group may stay open, for the rank's next order.
    """
    children, zombies = _children()
    return State(
        folder=_folder(),
        environment=_environment(),
        threads={
            thread.ident or 0: thread.name for thread in threading.enumerate() if not thread.daemon
        },
        children=children,
        zombies=zombies,
        torch=_torch_globals(keeps_group),
        device_bytes=(_device_bytes() or 0) - _device_bytes_at_first(),
        other_bytes=_other_bytes_growth() if gpu_share == 1 else 0,
    )


def restore(before: State) -> list[str]:
    """Restore working folder, environment and torch's determinism, and free cached GPU memory.

    Memory that torch's allocator keeps for later is not available to other processes of the GPU.

    Returns:
        the changes that cannot be undone, a sentence each.
    """
    if _folder() != before.folder:
        with suppress(FileNotFoundError):  # it was deleted, which `difference` tells
            os.chdir(before.folder)
    now = _environment()
    for name in now.keys() - before.environment.keys():
        del os.environ[name]
    for name, value in before.environment.items():
        if now.get(name) != value:
            os.environ[name] = value
    torch = sys.modules.get("torch")
    if torch is not None and (settings := before.torch):  # ray.train.torch sets these for a trial
        if torch.are_deterministic_algorithms_enabled() != settings["deterministic algorithms"]:
            torch.use_deterministic_algorithms(settings["deterministic algorithms"])
        torch.backends.cudnn.benchmark = settings["cudnn.benchmark"]
    if torch is not None and _device_bytes() is not None:
        try:
            torch.cuda.empty_cache()
            # The cache of pinned memory (checkpoints, batches), whose blocks are powers of two.
            if hasattr(torch._C, "_host_emptyCache"):  # only in torch built for GPUs
                torch._C._host_emptyCache()
        except RuntimeError as error:  # after a failed device-side assertion the GPU is unusable
            reason, _, _ = str(error).partition("\n")
            return [f"the GPU is in a state of error: {reason}"]
    return []


def difference(before: State, after: State) -> list[str]:
    """Return the changes between two states, a sentence each; empty: the process is as before."""
    torch = before.torch
    if not after.torch.keys() <= before.torch.keys():  # an import in between added settings
        defaults = {**FRESH_TORCH, **_compiler_defaults()}
        fresh = {name: defaults.get(name, value) for name, value in after.torch.items()}
        torch = {**fresh, **before.torch}
    changes = [
        # A value may be a secret, so only the variable's name is shown.
        *(f"environment: {name}" for name in _changed(before.environment, after.environment)),
        *(
            f"torch {name}: was {torch[name]}, is {after.torch[name]}"
            for name in _changed(torch, after.torch)
        ),
        *(f"thread {after.threads[key]} runs on" for key in after.threads.keys() - before.threads),
        *(
            f"child process {pid} ({after.children[pid]}) runs on"
            for pid in after.children.keys() - before.children
        ),
    ]
    if after.zombies > MAX_ZOMBIES:
        changes.append(f"{after.zombies} child processes have ended that nobody waited for")
    if after.folder != before.folder:
        changes.append(f"working folder: was {before.folder}, is {after.folder}")
    # Compared with the first order's start, not this order's: small leaks would add up unseen.
    if after.device_bytes > DEVICE_SLACK:
        changes.append(f"{after.device_bytes / 2**20:.0f} MiB of GPU memory are still allocated")
    if after.other_bytes > OTHER_SLACK:
        more = f"{after.other_bytes / 2**20:.0f} MiB more of GPU memory"
        changes.append(f"{more} than after the first order are held outside torch's allocator")
    return changes


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    if before == after:
        return []
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - three times as fast as Path.cwd()
    except FileNotFoundError:
        return "(removed)"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SET_BY_IMPORTS}


def _children() -> tuple[dict[int, str], int]:
    """Return the names of living children by process id, and the number of zombies.

    Zombies are left alone: the code that started one may still ask for its exit code.
    """
    if hasattr(os, "waitid"):  # not on macOS before Python 3.13
        try:
            # A single system call tells that there are no children, which is the usual case.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return {}, 0
    names, zombies = {}, 0
    for child in psutil.Process().children():
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                zombies += 1
                continue
            command = " ".join(child.cmdline())
            if command and not any(service in command for service in SERVICES):
                names[child.pid] = child.name()
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return names, zombies


def _torch_globals(keeps_group: bool) -> dict[str, object]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    cudnn, dist = torch.backends.cudnn, torch.distributed
    return {
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "anomaly detection": torch.is_anomaly_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 precision": float32_precision(),
        "cudnn.enabled": cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "attention kernels off": tuple(
            name
            for name in ("flash", "mem_efficient", "math", "cudnn")
            if not getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        ),
        # torch cannot be asked: the processor rounds the half of the least normal number to 0.
        "flush denormal": sys.float_info.min / 2 == 0.0,
        "threads": torch.get_num_threads(),
        "process group": dist.is_available() and dist.is_initialized() and not keeps_group,
        **_compiler_settings(),
    }


def _compiler_settings() -> dict[str, object]:
    """Return the settings of the parts of torch.compile that have been imported, by name."""
    return {
        f"{part}.{name}": value
        for part, config in _compiler_modules().items()
        for name, value in config.get_config_copy().items()
    }


def _compiler_defaults() -> dict[str, object]:
    """Return the settings of the parts of torch.compile as they are after the parts' import."""
    return {
        f"{part}.{name}": _default(entry)
        for part, config in _compiler_modules().items()
        for name, entry in config._config.items()
    }


def _default(entry: Any) -> object:
    """Return a setting that nobody has changed; torch has no function for it."""
    unset = sys.modules["torch.utils._config_module"]._UNSET_SENTINEL
    values = (entry.env_value_force, entry.env_value_default)
    return next((value for value in values if value is not unset), entry.default)


def _compiler_modules() -> dict[str, Any]:
    """Return the modules of settings that have been imported."""
    modules = {part: sys.modules.get(f"torch.{part}") for part in COMPILER}
    return {part: module for part, module in modules.items() if module is not None}


@cache
def _device_bytes_at_first() -> int:
    """Return the bytes of tensors on the GPU at the first call: the process's first baseline."""
    return _device_bytes() or 0


def _other_bytes_growth() -> int:
    """Return the growth of GPU memory outside torch's allocator since the first call, in bytes."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return _other_bytes() - _other_bytes_at_first()


@cache
def _other_bytes_at_first() -> int:
    return _other_bytes()


def _other_bytes() -> int:
    cuda = sys.modules["torch"].cuda
    try:
        free, total = cuda.mem_get_info()
    except RuntimeError:  # the GPU is in a state of error, which `restore` reports
        return 0
    other: int = total - free - cuda.memory_reserved()
    return other


def _device_bytes() -> int | None:
    """Return the bytes of tensors on the GPU; None: the GPU has not been used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    allocated: int = torch.cuda.memory_allocated()
    if allocated > DEVICE_SLACK:
        gc.collect()  # models and optimizers refer to each other in cycles
        allocated = torch.cuda.memory_allocated()
    return allocated
