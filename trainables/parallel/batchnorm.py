"""Batch normalization whose statistics are those of the whole batch, not of one rank's part.

Axes: B samples, C channels.
Source: Ioffe & Szegedy, Batch Normalization (2015), Algorithm 1; over ranks, Peng et al., MegDet
(2018), section 3.2.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.modules.batchnorm import _BatchNorm


class Total(torch.autograd.Function):
    """The sum over ranks; a gradient is the sum of what each rank makes of it."""

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        return Total.forward(ctx, gradient)


class GpuBatchNorm(nn.SyncBatchNorm):
    """torch's, for a rank that has samples or not."""

    absent = False  # whether what is passed through is no sample

    def forward(self, input: Tensor) -> Tensor:
        if not (self.absent and self.training):
            return super().forward(input)
        return _take_part(super().forward, input)


class CpuBatchNorm(_BatchNorm):
    """The same on the CPU, which torch's refuses, by two sums over ranks.

    Each rank counts with as many values as it has, be it none.
    """

    absent = False

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        return _take_part(self._on_cpu, input) if self.absent else self._on_cpu(input)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"batch norm: expected (samples, channels, ...), got {input.shape}")

    def _on_cpu(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        across = [0, *range(2, input.dim())]
        channels = (1, -1, *(1 for _ in across[1:]))
        # Sums of halves would round; the mean goes first, since E[x^2] - E[x]^2 cancels.
        fine = input.to(torch.promote_types(input.dtype, torch.float32))
        values = fine.new_tensor([input.numel() // input.size(1)])
        sums = Total.apply(torch.cat([fine.sum(across), values]))
        mean_C, count = sums[:-1] / sums[-1], sums[-1].detach()
        centred = fine - mean_C.view(channels)
        variance_C = Total.apply(centred.square().sum(across)) / count
        self._remember(mean_C, variance_C * count / (count - 1).clamp(min=1))
        normal = centred * (variance_C + self.eps).rsqrt().view(channels)
        if self.weight is not None:
            normal = normal * self.weight.view(channels)
        if self.bias is not None:
            normal = normal + self.bias.view(channels)
        whole: Tensor = normal.to(input.dtype)
        return whole

    @torch.no_grad()
    def _remember(self, mean_C: Tensor, variance_C: Tensor) -> None:
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or variance is None or batches is None:
            return
        batches.add_(1)
        # None: a plain mean of all.
        weight = 1 / batches.item() if self.momentum is None else self.momentum
        mean.lerp_(mean_C.to(mean.dtype), weight)
        variance.lerp_(variance_C.to(variance.dtype), weight)


def _take_part(normalize: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    """Count with no value; returns what there was, since nobody looks at it."""
    # torch gathers statistics of empty tensors in their own format, others' in float32.
    nothing = input[:0].to(torch.promote_types(input.dtype, torch.float32))
    return input + normalize(nothing).sum().to(input.dtype)


def synchronized(model: nn.Module) -> nn.Module:
    """The model with all of its batch norms replaced; weights and statistics stay what they are."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if type(module) is nn.SyncBatchNorm:
            values = [*module.parameters(), *module.buffers()]
            kind: type[nn.Module] = CpuBatchNorm
            if values and all(value.is_cuda for value in values):
                kind = GpuBatchNorm
            module.__class__ = kind  # type: ignore[assignment]
    return model


@contextmanager
def absent(model: nn.Module) -> Iterator[None]:
    """Within it, what passes through the model has no part in its batch norms' statistics."""
    norms = [
        module for module in model.modules() if isinstance(module, GpuBatchNorm | CpuBatchNorm)
    ]
    for norm in norms:
        norm.absent = True
    try:
        yield
    finally:
        for norm in norms:
            norm.absent = False
