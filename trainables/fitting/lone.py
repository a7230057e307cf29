"""Micro-batches of one sample, of which most batch norms can make nothing: it has no variance.

Where samples have places, such as the pixels of an image, a batch norm has values enough of one.
Whether it does shows when a sample goes through the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.fitting.passes import Passes
from trainables.parallel.batchnorm import CpuBatchNorm
from trainables.parallel.strategies import Strategy

TOLD = "Expected more than 1 value per channel"  # torch.nn.functional.batch_norm, up to 2.13


def check(passes: Passes, strategy: Strategy, parts: int) -> None:
    """Try a lone sample before the first epoch, if there will be one.

    Args:
        parts: micro-batches into which a place splits its share of a batch.

    Raises:
        ValueError: a batch norm cannot take it.
    """
    batch, samples = passes.task.batch, len(passes.data.train)
    sizes = {min(batch, samples), samples % batch}
    lone = [size for size in sizes if size and _least(size, strategy.places, parts) < 2]
    compiled = strategy.worker.training.compile != "none"
    if not lone or strategy.splits or compiled or not _has_batch_norm(passes.bare):
        return
    try:
        _train_on(passes, torch.zeros(1, dtype=torch.int64, device=passes.data.train.home))
    except ValueError as error:
        if TOLD not in str(error):
            raise
        raise refusal(max(lone), passes, strategy, parts) from error


def refusal(size: int, passes: Passes, strategy: Strategy, parts: int) -> ValueError:
    """What to say of a batch of this size."""
    batch, samples, places = passes.task.batch, len(passes.data.train), strategy.places
    which = f"a batch of {size}"
    if size < batch <= samples:
        which = f"the last batch of an epoch ({samples} samples by {batch} leave {size})"
    remedies = ["another batch"]
    if places > 1:
        which += f" over {places} ranks"
        remedies.append("fewer ranks")
    if parts > 1:
        which += f" in {parts} micro-batches each"
        remedies.append("a smaller training.accumulate")
    if strategy.worker.training.strategy in ("ddp", "fsdp", "zero1") and places > 1:
        remedies.append("training.sync_batchnorm: true")
    return ValueError(
        f"{which} leaves a batch norm a micro-batch of one sample, which has no variance; choose "
        + " or ".join(remedies)
    )


def _least(size: int, places: int, parts: int) -> int:
    """The samples of the smallest micro-batch; where there are none, one stands in."""
    number = min(parts, -(-size // places))
    return size // places // number


def _has_batch_norm(model: nn.Module) -> bool:
    """Whether there is one that sees this rank's samples alone."""
    return any(
        isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm | CpuBatchNorm)
        for module in model.modules()
    )


def _train_on(passes: Passes, at_B: Tensor) -> None:
    with torch.no_grad(), passes.autocast(), _unchanged(passes.bare):
        passes.bare.train()
        passes.task.compute_losses(passes.bare, passes.data.train.batch(at_B))


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Afterwards running statistics are what they were, and nothing stays gathered."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in kept:
            buffer.copy_(value)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
