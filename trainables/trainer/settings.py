"""torch's global settings during an order: matmul precision, determinism, attention, memory."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainables.environment import ON_GPU, float32_precision
from trainables.training import Training

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@contextmanager
def applied(training: Training, device: torch.device) -> Iterator[None]:
    """Apply the options within this context; restore the old settings on exit."""
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
        yield


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
    """Use algorithms that give equal bits in every run.

    Raises:
        RuntimeError: an operation has no deterministic algorithm.
    """
    # A rank's process has the variable already; elsewhere it works unless cuBLAS was used before.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ON_GPU["CUBLAS_WORKSPACE_CONFIG"])
    cudnn, strict = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    cudnn_before = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    except RuntimeError as error:
        if "torch.use_deterministic_algorithms" not in f"{error}":
            raise
        raise RuntimeError(f"training.deterministic is true, but {error}") from error
    finally:
        torch.use_deterministic_algorithms(strict)
        cudnn.benchmark, cudnn.deterministic = cudnn_before
