"""Refusal of micro-batches of one sample, which has no variance, for models with batch norms.

If samples have positions, such as the pixels of an image, one sample has values enough for a batch
norm. A trial pass of one sample shows whether it has.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.modules import reshard, restored
from trainables.parallel.batchnorm import CpuBatchNorm
from trainables.parallel.strategies import Strategy
from trainables.trainer.forward_backward import ForwardBackward

# The error of torch.nn.functional.batch_norm, up to 2.13.
TORCH_MESSAGE = "Expected more than 1 value per channel"


def check(passes: ForwardBackward, strategy: Strategy, parts: int) -> None:
    """Try a micro-batch of one sample before the first epoch, if an epoch will have one.

    Args:
        parts: micro-batches into which a rank splits its share of a batch.

    Raises:
        ValueError: a batch norm cannot normalize one sample.
    """
    batch, samples = passes.task.batch, len(passes.data.train)
    sizes = {min(batch, samples), passes.data.trained_samples(batch) % batch}
    single = [
        size for size in sizes if size and _smallest_micro_batch(size, strategy.dp_size, parts) < 2
    ]
    compiled = strategy.worker.training.compile != "none"
    if (
        not single
        or strategy.splits_batches
        or compiled
        or not _has_batch_norm(passes.unwrapped_model)
    ):
        return
    try:
        _try_forward(passes, torch.zeros(1, dtype=torch.int64, device=passes.data.train.home))
    except ValueError as error:
        if TORCH_MESSAGE not in str(error):
            raise
        raise refusal(max(single), passes, strategy, parts) from error


def refusal(size: int, passes: ForwardBackward, strategy: Strategy, parts: int) -> ValueError:
    """Return the error for a batch of this size."""
    batch, samples, dp_size = passes.task.batch, len(passes.data.train), strategy.dp_size
    subject, remedies = f"a batch of {size}", ["another batch"]
    if size < batch <= samples:
        subject = f"the last batch of an epoch ({samples} samples by {batch} leave {size})"
        remedies.append("Data(..., drop_last=True)")
    if dp_size > 1:
        subject += f" over {dp_size} ranks"
        remedies.append("fewer ranks")
    if parts > 1:
        subject += f" in {parts} micro-batches each"
        remedies.append("a smaller training.accumulate")
    if strategy.worker.training.strategy in ("ddp", "fsdp", "zero1") and dp_size > 1:
        remedies.append("training.sync_batchnorm: true")
    return ValueError(
        f"{subject} leaves a batch norm a micro-batch of one sample, which has no variance; choose "
        + " or ".join(remedies)
    )


def _smallest_micro_batch(size: int, dp_size: int, parts: int) -> int:
    """Return the size of the smallest micro-batch; a placeholder stands in for empty ones."""
    number = min(parts, -(-size // dp_size))
    return size // dp_size // number


def _has_batch_norm(model: nn.Module) -> bool:
    """Return whether a batch norm sees this rank's samples only."""
    return any(
        isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm | CpuBatchNorm)
        for module in model.modules()
    )


def _try_forward(passes: ForwardBackward, at_B: Tensor) -> None:
    model = passes.unwrapped_model
    try:
        with torch.no_grad(), passes.autocast(), restored(model.buffers()):
            model.train()
            passes.task.compute_losses(model, passes.data.train.batch(at_B))
    finally:
        reshard(model)
