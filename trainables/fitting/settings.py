"""torch's global settings during an order: products, determinism, attention, memory."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainables.checkpoints.environment import ON_GPU
from trainables.training import Training

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


@contextmanager
def applied(training: Training, device: torch.device) -> Iterator[None]:
    """Set what the options say; afterwards all is as before."""
    with ExitStack() as stack:
        if training.tf32:
            stack.enter_context(_tensor_cores())
        if training.deterministic:
            stack.enter_context(_deterministic())
        if training.attention != "auto":
            stack.enter_context(sdpa_kernel(KERNELS[training.attention]))
        if device.type == "cuda" and training.memory_fraction < 1:
            torch.cuda.set_per_process_memory_fraction(training.memory_fraction, device)
            stack.callback(torch.cuda.set_per_process_memory_fraction, 1.0, device)
        yield


@contextmanager
def _tensor_cores() -> Iterator[None]:
    """Matrix products of float32 in TensorFloat-32: 10 bits of mantissa."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


@contextmanager
def _deterministic() -> Iterator[None]:
    """Algorithms that give equal bits run after run.

    Raises:
        RuntimeError: an operation has none.
    """
    # In a rank it is set by now; elsewhere it counts unless cuBLAS has been used already.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ON_GPU["CUBLAS_WORKSPACE_CONFIG"])
    cudnn, strict = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    found = cudnn.benchmark, cudnn.deterministic
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
        cudnn.benchmark, cudnn.deterministic = found
