"""LAMB: Adam whose step is scaled to each layer's weights.

Source: You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 Minutes (2020),
Algorithm 2, with phi(z) = z. Vectors (biases, norms) take Adam's steps, as in the authors' code.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from trainables.optim.norms import local_part, sharded_gradient, trust_ratios

BETAS = (0.9, 0.999)
EPSILON = 1e-6


class Lamb(torch.optim.Optimizer):
    """LAMB: steps r + decay w, where r is Adam's; a matrix's step is scaled by |w| / |r + decay w|.

    A layer's norms are those of the complete layer, even if ranks share it.
    """

    def __init__(
        self,
        params: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            parts, moves = (
                [local_part(weight) for weight in weights],
                self._adam_directions(weights),
            )
            if group["weight_decay"]:
                torch._foreach_add_(moves, parts, alpha=group["weight_decay"])
            matrices = [index for index, weight in enumerate(weights) if weight.ndim > 1]
            if matrices:
                steps = [moves[index] for index in matrices]
                ratios = trust_ratios(steps, [weights[index] for index in matrices], 1.0)
                torch._foreach_mul_(steps, ratios)
            torch._foreach_sub_(parts, moves, alpha=group["lr"])

    def _adam_directions(self, weights: Sequence[Parameter]) -> list[Tensor]:
        """Update Adam's moments, and return Adam's direction for each weight."""
        states = [self._state(weight) for weight in weights]
        gradients = [local_part(sharded_gradient(weight)) for weight in weights]
        means = [local_part(state["mean"]) for state in states]
        squares = [local_part(state["square"]) for state in states]
        torch._foreach_lerp_(means, gradients, 1 - BETAS[0])
        torch._foreach_mul_(squares, BETAS[1])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETAS[1])
        for state in states:
            state["step"] += 1
        # Counts are on the CPU, so reading them does not wait for the device.
        counts = [state["step"].item() for state in states]
        moves = list(torch._foreach_div(means, [1 - BETAS[0] ** count for count in counts]))
        denominators = list(
            torch._foreach_div(squares, [1 - BETAS[1] ** count for count in counts])
        )
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, EPSILON)
        torch._foreach_div_(moves, denominators)
        return moves

    def _state(self, weight: Parameter) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["mean"] = torch.zeros_like(weight)
            state["square"] = torch.zeros_like(weight)
        return state
