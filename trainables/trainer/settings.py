"""torch's global settings during an order: matmul precision, determinism, attention, memory."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainables.environment import ON_GPU, float32_precision
from trainables.training import OF_PROCESS, Training
from trainables.vmap_options import as_text

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@dataclass
class _Applied:
    """The options that are in force, and by how many orders of this process."""

    options: dict[str, object] = field(default_factory=dict)
    users: int = 0
    undo: ExitStack = field(default_factory=ExitStack)


_applied = _Applied()


@contextmanager
def applied(training: Training, device: torch.device) -> Iterator[None]:
    """Apply the options within this context; the last that leaves it restores the old settings.

    Raises:
        ValueError: other trials train in this process with other options.
    """
    options = {name: getattr(training, name) for name in OF_PROCESS}
    for name, value in _applied.options.items() if _applied.users else ():
        if value != options[name]:
            raise ValueError(
                f"training.{name} is {as_text(options[name])}, and {as_text(value)} in the trials "
                "of the same process (training.share_base); give all trials one value"
            )
    if not _applied.users:
        _applied.options, _applied.undo = options, _apply(training, device)
    _applied.users += 1
    try:
        with _explained() if training.deterministic else nullcontext():
            yield
    finally:
        _applied.users -= 1
        if not _applied.users:
            _applied.undo.close()


def _apply(training: Training, device: torch.device) -> ExitStack:
    """Apply the options, and return what restores the old settings."""
    with ExitStack() as stack:
        stack.enter_context(_float32_matmuls(training.tf32))
        if training.deterministic:
            stack.enter_context(_deterministic())
        if training.attention != "auto":
            stack.enter_context(sdpa_kernel(KERNELS[training.attention]))
        if device.type == "cuda" and training.memory_fraction < 1:
            share = torch.cuda.get_per_process_memory_fraction(device)  # below 1 on a shared GPU
            fraction = min(training.memory_fraction, share)
            torch.cuda.set_per_process_memory_fraction(fraction, device)
            stack.callback(torch.cuda.set_per_process_memory_fraction, share, device)
        return stack.pop_all()


@contextmanager
def _float32_matmuls(tf32: bool) -> Iterator[None]:
    """Let GPUs multiply float32 exactly, or as TensorFloat-32, whose mantissa has 10 bits.

    This includes convolutions, for which torch's default is TensorFloat-32.
    """
    before = float32_precision()
    chosen = "tf32" if tf32 else "ieee"
    _set_float32(chosen, chosen, chosen)
    try:
        yield
    finally:
        _set_float32(*before)


def _set_float32(products: str, convolutions: str, recurrent: str) -> None:
    """Set torch's precision switches, the older ones included, which torch.compile reads."""
    levels = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
    torch.set_float32_matmul_precision(levels[products])
    cudnn: Any = torch.backends.cudnn
    cudnn.allow_tf32 = convolutions == "tf32"
    if hasattr(cudnn, "conv"):
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = convolutions, recurrent


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use algorithms that give equal bits in every run."""
    # A rank's process has the variable already; elsewhere it works unless cuBLAS was used before.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ON_GPU["CUBLAS_WORKSPACE_CONFIG"])
    cudnn, strict = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    cudnn_before = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict)
        cudnn.benchmark, cudnn.deterministic = cudnn_before


@contextmanager
def _explained() -> Iterator[None]:
    """Name the option in the error of an operation that has no deterministic algorithm."""
    try:
        yield
    except RuntimeError as error:
        if "torch.use_deterministic_algorithms" not in f"{error}":
            raise
        raise RuntimeError(f"training.deterministic is true, but {error}") from error
