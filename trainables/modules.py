"""Changes of a model that last for a context, and the end of weights gathered by fully_shard."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode in this context; restore each module's own mode on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def restored(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Restore the values of these tensors on exit; they may change within this context."""
    saved = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in saved:
                tensor.copy_(value)


def reshard(model: nn.Module) -> None:
    """Free gathered weights: without a backward pass, fully_shard's root keeps its own.

    The root would compute with these, whatever values the shards have by then (torch 2.13).
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
