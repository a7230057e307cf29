"""What an order leaves behind in a process that is to serve the next one.

`restore` puts back what can be put back exactly (environment, working folder); what `difference`
then still finds makes the slot start its ranks afresh.
"""

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

import psutil

# Set once by libraries when they are imported; taking them back would be wrong.
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
# Python's own service processes hold nothing of an order.
SERVICES = ("multiprocessing.resource_tracker", "loky.backend.resource_tracker")
MOST_UNBURIED = 100  # each keeps its process id from all others
# What a process holds of a GPU once it has been used: cuBLAS keeps a workspace of 32 MiB for each
# thread and stream that multiplies; 65 MiB were seen on an H200 after a small network.
DEVICE_SLACK = 256 * 2**20
# torch as it is imported; the number of threads depends on the machine.
FRESH_TORCH: Mapping[str, object] = MappingProxyType(
    {
        "default dtype": "torch.float32",
        "default device": "cpu",
        "gradients": True,
        "autocast": False,
        "anomaly detection": False,
        "deterministic algorithms": False,
        "matmul precision": "highest",
        "cudnn.enabled": True,
        "cudnn.benchmark": False,
        "cudnn.deterministic": False,
        "process group": False,
    }
)


@dataclass(frozen=True)
class State:
    """What of a process an order could change for the next one."""

    folder: str
    environment: Mapping[str, str]
    threads: Mapping[int, str]  # non-daemon ones, by identity
    children: Mapping[int, str] = field(default_factory=dict)  # by process id
    unburied: int = 0  # children that have ended, and that nobody has waited for
    torch: Mapping[str, object] = field(default_factory=dict)  # empty: never imported
    device_bytes: int = 0  # of the GPU, beyond what the process held before its first order


def adopt() -> None:
    """Be the parent of what this process's children leave behind, so that it is found (Linux).

    Ray would see to it if asked, but has its processes ignore SIGCHLD then: every program that they
    run seems to have ended with 0 (measured: Ray 2.60).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def baseline() -> State:
    """The process as it is now; under 0.1 ms unless it has children or uses a GPU."""
    children, unburied = _children()
    return State(
        folder=_folder(),
        environment=_environment(),
        threads={
            thread.ident or 0: thread.name for thread in threading.enumerate() if not thread.daemon
        },
        children=children,
        unburied=unburied,
        torch=_torch_globals(),
        device_bytes=(_device_bytes() or 0) - _held_at_first(),
    )


def restore(before: State) -> list[str]:
    """Put back the working folder and the environment variables, and give unused memory back.

    What torch's allocator keeps of a GPU for later is missing to the other processes there.

    Returns:
        what cannot be put back, a sentence each.
    """
    if _folder() != before.folder:
        os.chdir(before.folder)
    now = _environment()
    for name in now.keys() - before.environment.keys():
        del os.environ[name]
    for name, value in before.environment.items():
        if now.get(name) != value:
            os.environ[name] = value
    if _device_bytes() is not None:
        try:
            sys.modules["torch"].cuda.empty_cache()
        except RuntimeError as error:  # an assertion that failed on a GPU leaves it of no use
            said, _, _ = str(error).partition("\n")
            return [f"the GPU is in a state of error: {said}"]
    return []


def difference(before: State, after: State) -> list[str]:
    """What changed, a sentence each; empty: the process is as good as before."""
    torch = before.torch or _fresh(after.torch)
    found = [
        # A value may be a secret, so variables are named and not shown.
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
    if after.unburied > MOST_UNBURIED:
        found.append(f"{after.unburied} child processes have ended that nobody waited for")
    if after.folder != before.folder:
        found.append(f"working folder: was {before.folder}, is {after.folder}")
    # Not by what it was before this order: what each of many leaves would add up unseen.
    if after.device_bytes > DEVICE_SLACK:
        found.append(f"{after.device_bytes / 2**20:.0f} MiB of GPU memory are still allocated")
    return found


def _fresh(after: Mapping[str, object]) -> Mapping[str, object]:
    """What torch's globals were when the order that first imported it began."""
    return {name: FRESH_TORCH.get(name, value) for name, value in after.items()}


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
    """Those that live, by process id, and how many have ended and are not buried.

    The latter are not ours to wait for: somebody may still ask how one of them ended.
    """
    try:
        # One system call says that there are none, which is the rule.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}, 0
    found, unburied = {}, 0
    for child in psutil.Process().children():
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                unburied += 1
                continue
            command = " ".join(child.cmdline())
            if command and not any(service in command for service in SERVICES):
                found[child.pid] = child.name()
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return found, unburied


def _torch_globals() -> dict[str, object]:
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
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn.enabled": cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "threads": torch.get_num_threads(),
        "process group": dist.is_available() and dist.is_initialized(),
    }


@cache
def _held_at_first() -> int:
    """What tensors took of the GPU when this was first asked: at the process's first baseline."""
    return _device_bytes() or 0


def _device_bytes() -> int | None:
    """What tensors take of the GPU; None: it has not been used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    allocated: int = torch.cuda.memory_allocated()
    if allocated > DEVICE_SLACK:
        gc.collect()  # models and optimizers refer to each other in cycles
        allocated = torch.cuda.memory_allocated()
    return allocated
