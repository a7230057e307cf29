"""LARS: stochastic gradient descent whose step is scaled to each layer's weights.

Source: You, Gitman & Ginsburg, Large Batch Training of Convolutional Networks (2017),
Algorithm 1; |g + decay w| stands for |g| + decay |w|. Vectors (biases, norms) take plain steps.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from trainables.optim.norms import local_part, sharded_gradient, trust_ratios

TRUST = 1e-2  # eta in the paper, which takes 1e-3 for ImageNet


class Lars(torch.optim.Optimizer):
    """LARS: momentum on gradients; a matrix's, decay included, is scaled by TRUST |w| / |g|.

    A layer's norms are those of the complete layer, even if ranks share it.
    """

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            matrices = [weight for weight in weights if weight.ndim > 1]
            vectors = [weight for weight in weights if weight.ndim <= 1]
            if matrices:
                self._step_with_momentum(
                    matrices, _trust_scaled(matrices, group["weight_decay"]), group
                )
            if vectors:
                self._step_with_momentum(
                    vectors, [local_part(sharded_gradient(weight)) for weight in vectors], group
                )

    def _step_with_momentum(
        self, weights: Sequence[Parameter], slopes: list[Tensor], group: dict[str, float]
    ) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [local_part(self.state[weight]["momentum"]) for weight in weights]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, slopes, alpha=group["lr"])
        torch._foreach_sub_([local_part(weight) for weight in weights], momenta)


def _trust_scaled(matrices: Sequence[Parameter], decay: float) -> list[Tensor]:
    """Return gradients with decay, each scaled to its layer."""
    gradients = [local_part(sharded_gradient(weight)) for weight in matrices]
    decayed = list(
        torch._foreach_add(gradients, [local_part(matrix) for matrix in matrices], alpha=decay)
    )
    torch._foreach_mul_(decayed, trust_ratios(decayed, matrices, TRUST))
    return decayed
