"""Floating-point operations of a model, and the share of the device's peak that they make.

Source: Chowdhery et al., PaLM (2022), appendix B: model FLOPs utilisation counts the products of
matrices that the model's definition asks for, forward and backward, however they were computed;
so what activation checkpointing computes again does not count, nor do sums and activations.
"""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

Shape = Sequence[int]


@dataclass
class Count:
    """Operations, known once the counting is over. An addition and a product are two."""

    model: int = 0  # that the model asks for
    repeated: int = 0  # that were done again to save memory


@contextmanager
def counted() -> Iterator[Count]:
    """Count what runs within: one real forward and backward pass of this rank.

    Counting takes many times the pass itself, and seconds the first time in a process. Call the
    model as it was before `torch.compile`: what is compiled runs uncompiled here, or is not seen.
    Of a DTensor's operation the whole is counted, not this rank's part of it.
    """
    if "torch._dynamo" not in sys.modules:
        # Torch's dispatch modes load it at their first operation (2.13), and some of its modules
        # keep the frames of their import in a cycle, ours among them: the model outlived its order.
        importlib.import_module("torch._dynamo")
        gc.collect()
    count = Count()
    counter = FlopCounterMode(display=False, custom_mapping=_attention())
    with counter, _Repetitions(counter, count):
        yield count
    count.model = counter.get_total_flops() - count.repeated


def mfu(flops: float, seconds: float, peak: float) -> float:
    """The share of the peak that was used (1: all), in a run of `seconds`; Chowdhery, (1)."""
    return flops / (seconds * peak)


class _Repetitions(TorchDispatchMode):
    """Counts what a backward pass computes anew: only there, it records a graph as it goes."""

    def __init__(self, counter: FlopCounterMode, count: Count) -> None:
        super().__init__()
        self._counter, self._count = counter, count

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if not (torch.is_grad_enabled() and self._counter.mod_tracker.is_bw):
            return func(*args, **(kwargs or {}))
        before = self._counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        self._count.repeated += self._counter.get_total_flops() - before
        return result


def _attention() -> dict[Any, Any]:
    """Counts of fused attention: torch 2.13 has none for CPUs, and one product too many backward.

    The kernels compute the scores again in the backward pass, which the model does not ask for.
    """
    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: _forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
        aten._scaled_dot_product_flash_attention_backward: _backward,
        aten._scaled_dot_product_efficient_attention_backward: _backward,
        aten._scaled_dot_product_cudnn_attention_backward: _backward,
    }


def _forward(query: Shape, key: Shape, value: Shape, *_others: object, **_named: object) -> int:
    """Scores and their weighted values: B, H, T, K of the query; S and V of key and value."""
    batch, heads, targets, width = query
    return 2 * batch * heads * targets * key[-2] * (width + value[-1])


def _backward(
    _gradient: Shape, query: Shape, key: Shape, value: Shape, *_others: object, **_named: object
) -> int:
    return 2 * _forward(query, key, value)
