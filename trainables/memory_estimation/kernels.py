"""Substitutes for operations that keep more for their backward pass on a CPU than on a GPU.

Source: Dao et al., FlashAttention (2022), section 3: dropout too is drawn again, not kept.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from trainables.training import Training

DROPOUT_AT = 4  # among the arguments of scaled_dot_product_attention
SIGNATURE = inspect.signature(functional.dropout)


@contextmanager
def device_kernels(training: Training, gpu: bool) -> Iterator[None]:
    """Let operations keep for their backward pass as much as they do on the chosen device."""
    plain = training.attention == "math"
    attention = sdpa_kernel(SDPBackend.MATH) if plain else nullcontext()
    with attention, AsOnGpu(plain) if gpu else nullcontext():
        yield


class AsOnGpu(TorchFunctionMode):
    """A function mode in which dropout keeps one byte per element, and fused attention nothing.

    Args:
        plain: whether attention is unfused and keeps its scores.
    """

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self._plain = plain

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is functional.dropout:
            bound = SIGNATURE.bind(*args, **named)
            bound.apply_defaults()
            values, probability, training, _ = bound.args
            return (
                torch.native_dropout(values, probability, True)[0]
                if training and probability
                else values
            )
        if func is functional.scaled_dot_product_attention and not self._plain:
            args = tuple(
                0.0 if position == DROPOUT_AT else value for position, value in enumerate(args)
            )
            if "dropout_p" in named:
                named["dropout_p"] = 0.0
        return func(*args, **named)
