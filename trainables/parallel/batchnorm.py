"""Batch normalization with the statistics of the global batch, not of one rank's share of it.

Axes: B samples, C channels.
Source: Ioffe & Szegedy, Batch Normalization (2015), Algorithm 1; over ranks, Peng et al., MegDet
(2018), section 3.2.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.modules.batchnorm import _BatchNorm


class Total(torch.autograd.Function):
    """Sum a tensor over ranks; its gradient is the sum of the gradients on all ranks."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        return Total.forward(ctx, gradient)


class GpuBatchNorm(nn.SyncBatchNorm):
    """torch's SyncBatchNorm, for ranks with or without samples."""

    absent = False  # whether the input is a placeholder, which must not count

    def forward(self, input: Tensor) -> Tensor:
        if not (self.absent and self.training):
            return super().forward(input)
        return _join_without_samples(super().forward, input)


class CpuBatchNorm(_BatchNorm):
    """Synchronized batch norm for CPUs, which torch's SyncBatchNorm refuses.

    It makes two sums over ranks, to which each rank adds as many values as it has, even none.
    """

    absent = False

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        return (
            _join_without_samples(self._normalize, input) if self.absent else self._normalize(input)
        )

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm: expected (samples, channels, ...), got {input.shape}")

    def _normalize(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        dims = [0, *range(2, input.dim())]
        channels = (1, -1, *(1 for _ in dims[1:]))
        # Sums in half precision would round; the mean goes first, since E[x^2] - E[x]^2 cancels.
        values32 = input.to(torch.promote_types(input.dtype, torch.float32))
        count_values = values32.new_tensor([input.numel() // input.size(1)])
        sums = Total.apply(torch.cat([values32.sum(dims), count_values]))
        mean_C, total_count = sums[:-1] / sums[-1], sums[-1].detach()
        centred = values32 - mean_C.view(channels)
        variance_C = Total.apply(centred.square().sum(dims)) / total_count
        self._update_running_stats(
            mean_C, variance_C * total_count / (total_count - 1).clamp(min=1)
        )
        normalized = centred * (variance_C + self.eps).rsqrt().view(channels)
        if self.weight is not None:
            normalized = normalized * self.weight.view(channels)
        if self.bias is not None:
            normalized = normalized + self.bias.view(channels)
        output: Tensor = normalized.to(input.dtype)
        return output

    @torch.no_grad()
    def _update_running_stats(self, mean_C: Tensor, variance_C: Tensor) -> None:
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or variance is None or batches is None:
            return
        batches.add_(1)
        # None: the plain mean of all batches.
        weight = 1 / batches.item() if self.momentum is None else self.momentum
        mean.lerp_(mean_C.to(mean.dtype), weight)
        variance.lerp_(variance_C.to(variance.dtype), weight)


def _join_without_samples(normalize: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    """Take part in the exchange of statistics with no value.

    Returns the input unchanged in value, since its output is discarded.
    """
    # torch gathers the statistics of empty tensors in their own format, of others in float32.
    nothing = input[:0].to(torch.promote_types(input.dtype, torch.float32))
    return input + normalize(nothing).sum().to(input.dtype)


def synchronized(model: nn.Module) -> nn.Module:
    """Replace all batch norms by synchronized ones with the same weights and statistics."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if type(module) is nn.SyncBatchNorm:
            tensors = [*module.parameters(), *module.buffers()]
            norm_class: type[nn.Module] = CpuBatchNorm
            if tensors and all(value.is_cuda for value in tensors):
                norm_class = GpuBatchNorm
            module.__class__ = norm_class  # type: ignore[assignment]
    return model


@contextmanager
def absent(model: nn.Module) -> Iterator[None]:
    """Keep the inputs of the model out of its batch norms' statistics, within this context.

    The model itself is marked too, for what else counts samples.
    """
    kinds = GpuBatchNorm | CpuBatchNorm
    marked: list[Any] = [
        model,
        *(module for module in model.modules() if isinstance(module, kinds)),
    ]
    for module in marked:
        module.absent = True
    try:
        yield
    finally:
        for module in marked:
            module.absent = False
