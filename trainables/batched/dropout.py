"""Dropout for K trials at once: each draws from a generator of its own, at a rate of its own.

So what a trial draws depends on its seed, and not on the company that it trains in. On a CPU it is
what torch's own dropout would draw for it alone; a GPU's fused kernel draws other numbers.

Axes: K trials. Source: Srivastava et al., Dropout (2014), scaled at training time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Draws:
    """What the trials draw from, in the order of their rows."""

    generators: Sequence[torch.Generator] = ()
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by module, of each trial

    def masks(self, like_K: Tensor, name: str) -> Tensor:
        """0 for what is dropped, and else what keeps the mean, in the shape of `like_K`."""
        masks = torch.empty_like(like_K, requires_grad=False, memory_format=torch.contiguous_format)
        kept = [1.0 - rate for rate in self.rates[name]]
        for mask, share, generator in zip(masks, kept, self.generators, strict=True):
            if 0.0 < share < 1.0:  # torch draws nothing at the ends either
                mask.bernoulli_(share, generator=generator)
            else:
                mask.fill_(share)
        divisors = torch.tensor([share or 1.0 for share in kept], dtype=masks.dtype)
        return masks.div_(divisors.to(masks.device).view(-1, *[1] * (masks.dim() - 1)))


class Drawn(nn.Module):
    """What stands in a shared model for an nn.Dropout."""

    def __init__(self, draws: Draws, name: str) -> None:
        super().__init__()
        self.draws, self.name = draws, name

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not any(self.draws.rates[self.name]):
            return x
        found: Tensor = _Masking.apply(x, self)
        return found


class _Masking(torch.autograd.Function):
    """A product with masks, which are drawn where all trials' values are at hand."""

    @staticmethod
    def forward(x: Tensor, drawn: Drawn) -> Tensor:
        raise RuntimeError("a batch's dropout runs under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing: the gradient is that of the product below."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], x: Tensor, drawn: Drawn
    ) -> tuple[Tensor, int]:
        at = in_dims[0]
        x_K = x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)
        return x_K * drawn.draws.masks(x_K, drawn.name), 0


def rates(model: nn.Module) -> dict[str, float]:
    """The rate of each nn.Dropout of a model, by the module's name."""
    named = model.named_modules(remove_duplicate=False)
    return {name: module.p for name, module in named if type(module) is nn.Dropout}


def replace(model: nn.Module, draws: Draws) -> None:
    """Let a model's dropout draw for each trial by itself."""
    for name in rates(model):
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, Drawn(draws, name))
