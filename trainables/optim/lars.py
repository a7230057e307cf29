"""LARS: stochastic gradient descent whose step is scaled to each layer's weights.

Source: You, Gitman & Ginsburg, Large Batch Training of Convolutional Networks (2017),
Algorithm 1; |g + decay w| stands for |g| + decay |w|. Vectors (biases, norms) take plain steps.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter

TRUST = 1e-2  # eta in the paper, which takes 1e-3 for ImageNet


class Lars(torch.optim.Optimizer):
    """Momentum on gradients; a matrix's is scaled by TRUST |w| / |g|, its decay included."""

    def __init__(
        self, params: Iterable[Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group)

    def _move(self, weight: Parameter, gradient: Tensor, group: dict[str, float]) -> None:
        if weight.ndim > 1:
            gradient = gradient + group["weight_decay"] * weight
            gradient *= _trust(weight, gradient)
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].mul_(group["momentum"]).add_(gradient, alpha=group["lr"])
        weight.sub_(state["momentum"])


def _trust(weight: Tensor, gradient: Tensor) -> Tensor:
    """A layer's own rate; 1 where weight or gradient is zero, since a norm then says nothing."""
    length, slope = weight.norm(), gradient.norm()
    return torch.where(length * slope > 0, TRUST * length / slope, 1.0)
