"""Floating-point operations of a model, and the share of the device's peak that they reach.

Source: Chowdhery et al., PaLM (2022), appendix B: model FLOPs utilisation counts the products of
matrices that the model's definition needs, forward and backward, however they were computed; so
recomputation by activation checkpointing does not count, nor do sums and activation functions.
"""

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

Shape = Sequence[int]


@dataclass
class Count:
    """Numbers of operations, set once counting is over. An addition and a product are two."""

    model: int = 0  # operations that the model needs
    repeated: int = 0  # operations done again to save memory


@contextmanager
def count_flops() -> Iterator[Count]:
    """Count the operations within this context: one real forward and backward pass of this rank.

    Counting takes many times as long as the pass, and seconds the first time in a process. Call the
    model as it was before `torch.compile`: compiled code runs uncompiled here, or is not seen. A
    DTensor's operation is counted for the complete tensor, not for this rank's part.
    """
    if "torch._dynamo" not in sys.modules:
        # Torch's dispatch modes load it at their first operation (2.13), and some of its modules
        # keep the frames of their import in a reference cycle, this frame among them: the model
        # outlived its order.
        importlib.import_module("torch._dynamo")
        gc.collect()
    count = Count()
    counter = FlopCounterMode(display=False, custom_mapping=_attention_flops())
    with counter, _CountRecomputation(counter, count):
        yield count
    count.model = counter.get_total_flops() - count.repeated


def mfu(flops: float, seconds: float, peak: float) -> float:
    """Return the share of the peak used in a run of `seconds` (1: all); Chowdhery, (1)."""
    return flops / (seconds * peak)


class _CountRecomputation(TorchDispatchMode):
    """A counter of recomputation: only there does a backward pass record a graph."""

    def __init__(self, counter: FlopCounterMode, count: Count) -> None:
        super().__init__()
        self._counter, self._count = counter, count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not (torch.is_grad_enabled() and self._counter.mod_tracker.is_bw):
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        self._count.repeated += self._counter.get_total_flops() - before
        return result


def _attention_flops() -> dict[Any, Any]:
    """Return functions that count fused attention's operations.

    torch 2.13 has none for CPUs, and counts one product too many backward: the kernels recompute
    the scores in the backward pass, which the model does not need.
    """
    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: _attention_forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
        aten._scaled_dot_product_flash_attention_backward: _attention_backward,
        aten._scaled_dot_product_efficient_attention_backward: _attention_backward,
        aten._scaled_dot_product_cudnn_attention_backward: _attention_backward,
    }


def _attention_forward(
    query: Shape, key: Shape, value: Shape, *_others: object, **_named: object
) -> int:
    """Count scores and weighted values: B, H, T, K of the query; S and V of key and value."""
    batch, heads, targets, width = query
    return 2 * batch * heads * targets * key[-2] * (width + value[-1])


def _attention_backward(
    _gradient: Shape, query: Shape, key: Shape, value: Shape, *_others: object, **_named: object
) -> int:
    return 2 * _attention_forward(query, key, value)
