"""Activation checkpointing: the backward pass recomputes activations instead of keeping them.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainables.blocks import blocks
from trainables.modules import restored


def checkpoint_blocks(model: nn.Module, every: int, compiled: bool = False) -> None:
    """Keep only the input of every n-th block; recomputation draws the same random numbers.

    Args:
        compiled: torch.compile will compile the model; it accepts no contexts, which would
            preserve running means.

    Raises:
        ValueError: the model has no blocks, or compiled blocks would count a batch twice.
    """
    blocks_of_model = blocks(model)
    if not blocks_of_model:
        raise ValueError(
            f"training.activation_checkpointing is {every}, but {type(model).__name__} has no "
            "blocks; put them into an nn.ModuleList or nn.Sequential, or set "
            "activation_checkpointing to 0"
        )
    for name in list(blocks_of_model)[::every]:
        inner = blocks_of_model[name].modules()
        if compiled and any(getattr(module, "running_mean", None) is not None for module in inner):
            raise ValueError(
                f"training.activation_checkpointing is {every}, but {name} has a norm with "
                "running means, which a compiled model would update twice; set compile to none "
                "or activation_checkpointing to 0, or choose a norm without running "
                "means, such as nn.GroupNorm"
            )
        blocks_of_model[name].forward = _checkpointed(blocks_of_model[name], compiled)


def _checkpointed(block: nn.Module, compiled: bool) -> Callable[..., Any]:
    own_forward = vars(block).get("forward")  # a wrapper for another number format, say

    def forward(*args: Any, **kwargs: Any) -> Any:
        if own_forward is not None:
            return own_forward(*args, **kwargs)
        return type(block).forward(block, *args, **kwargs)  # sharding changes the block's class

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of the first pass and of the recomputation."""
        return nullcontext(), restored(block.buffers())  # running means have counted the batch

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        if compiled or next(block.buffers(), None) is None:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    return wrapped
