"""Dropout for K trials at once: each trial draws from its own generator, at its own rate.

So a trial's masks depend on its seed, and not on the trials beside it. On a CPU they equal those of
torch's own dropout in a trial running alone; a GPU's fused kernel draws other numbers.

Axes: K trials. Source: Srivastava et al., Dropout (2014), scaled at training time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class DropoutMasks:
    """The generators and dropout rates of the trials, in the order of their rows."""

    generators: Sequence[torch.Generator] = ()
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by module, of each trial

    def masks(self, like_K: Tensor, name: str) -> Tensor:
        """Draw masks in the shape of `like_K`: 0 for dropped values, else 1 / (1 - rate)."""
        masks = torch.empty_like(like_K, requires_grad=False, memory_format=torch.contiguous_format)
        kept = [1.0 - rate for rate in self.rates[name]]
        for mask, share, generator in zip(masks, kept, self.generators, strict=True):
            if 0.0 < share < 1.0:  # like torch, draw nothing at rates 0 and 1
                mask.bernoulli_(share, generator=generator)
            else:
                mask.fill_(share)
        divisors = torch.tensor([share or 1.0 for share in kept], dtype=masks.dtype)
        return masks.div_(divisors.to(masks.device).view(-1, *[1] * (masks.dim() - 1)))


class TrialDropout(nn.Module):
    """Replacement for an nn.Dropout in a model shared by several trials."""

    def __init__(self, draws: DropoutMasks, name: str) -> None:
        super().__init__()
        self.dropout_masks, self.name = draws, name

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not any(self.dropout_masks.rates[self.name]):
            return x
        dropped: Tensor = _Masking.apply(x, self)
        return dropped


class _Masking(torch.autograd.Function):
    """Multiplication by masks, drawn under vmap, where the values of all trials are at hand."""

    @staticmethod
    def forward(x: Tensor, drawn: TrialDropout) -> Tensor:
        raise RuntimeError("a batch's dropout runs under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Do nothing: the gradient is that of the product in `vmap`."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], x: Tensor, drawn: TrialDropout
    ) -> tuple[Tensor, int]:
        at = in_dims[0]
        x_K = x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)
        return x_K * drawn.dropout_masks.masks(x_K, drawn.name), 0


def rates(model: nn.Module) -> dict[str, float]:
    """Return the rate of each nn.Dropout of a model, by the module's name."""
    named = model.named_modules(remove_duplicate=False)
    return {name: module.p for name, module in named if type(module) is nn.Dropout}


def replace(model: nn.Module, draws: DropoutMasks) -> None:
    """Replace each nn.Dropout of a model by a TrialDropout, in place."""
    for name in rates(model):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, TrialDropout(draws, name))
