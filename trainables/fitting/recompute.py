"""Activations that are computed again in the backward pass instead of being kept.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainables.blocks import blocks


def recompute(model: nn.Module, every: int) -> None:
    """Keep of every n-th block its input only; random numbers are drawn again as they were.

    Raises:
        ValueError: the model has no blocks.
    """
    found = list(blocks(model).values())
    if not found:
        raise ValueError(
            f"training.recompute is {every}, but {type(model).__name__} has no blocks; put them "
            "into an nn.ModuleList or nn.Sequential, or set recompute to 0"
        )
    for block in found[::every]:
        block.forward = _again(block)


def _again(block: nn.Module) -> Callable[..., Any]:
    own = vars(block).get("forward")  # that computes in another format, say

    def forward(*args: Any, **kwargs: Any) -> Any:
        if own is not None:
            return own(*args, **kwargs)
        return type(block).forward(block, *args, **kwargs)  # of the class that sharding gives it

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        contexts = partial(_contexts, block)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return wrapped


def _contexts(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Those of a first pass, and of the one that computes again."""
    return nullcontext(), _unchanged(block)


@contextmanager
def _unchanged(block: nn.Module) -> Iterator[None]:
    """Running means have seen the batch already."""
    kept = [(buffer, buffer.clone()) for buffer in block.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
