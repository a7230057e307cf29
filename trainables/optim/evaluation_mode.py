"""Optimizers that evaluate other weights than those that they train, such as schedule-free ones.

They have methods `train` and `eval`, which put the weights for training or for evaluation into the
model. The runtime keeps them in train mode, except within `evaluation_weights`.

Source: Defazio et al., The Road Less Scheduled (2024), section 2, and its package `schedulefree`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainables.modules import reshard, restored
from trainables.optim.chained import parts_of, weights_of
from trainables.optim.norms import local_part


def with_modes(optimizer: Optimizer) -> list[Any]:
    """Return those of the optimizer's parts that have the methods `train` and `eval`."""
    return [
        part
        for part in parts_of(optimizer)
        if callable(getattr(part, "train", None)) and callable(getattr(part, "eval", None))
    ]


def start_training(optimizer: Optimizer) -> None:
    """Switch the optimizer to train mode, before its first step."""
    for part in with_modes(optimizer):
        part.train()


@contextmanager
def evaluation_weights(optimizer: Optimizer, model: nn.Module) -> Iterator[None]:
    """Give the model the weights for evaluation within this context, if they are others.

    On exit the weights for training come back from a copy: computing them back would round them,
    and an evaluation or a checkpoint would change what is learned.
    """
    parts = with_modes(optimizer)
    weights = [local_part(weight.detach()) for part in parts for weight in weights_of(part)]
    with restored(weights):
        for part in parts:
            part.eval()
        reshard(model)
        try:
            yield
        finally:
            start_training(optimizer)
    reshard(model)
