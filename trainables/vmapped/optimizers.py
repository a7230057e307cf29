"""Optimizer updates of K trials at once, each with its own learning rate and other numbers.

Sources: SGD with momentum, Sutskever et al., On the Importance of Initialization and Momentum in
Deep Learning (2013), as torch has it (the learning rate outside the momentum); Adam, Kingma & Ba
(2015), Algorithm 1; AdamW, Loshchilov & Hutter, Decoupled Weight Decay Regularization (2019),
Algorithm 2.

Axes: K trials, P weights of a parameter group; a coefficient is (K, 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from trainables.optim.chained import name_of
from trainables.vmapped.refusals import Unbatchable

Group = Mapping[str, Any]  # an entry of an optimizer's param_groups
FLAGS = ("maximize", "amsgrad", "differentiable", "dampening")  # options that are not supported


class Optimizer(Protocol):
    """A kind of optimizer, applied to all trials at once."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names, in torch, of the state tensors of each weight."""
        ...

    def coefficients(self, group: Group, number: int) -> tuple[float, ...]:
        """Return the coefficients of a trial's update with this number, counted from 1."""
        ...

    def step(
        self, w_KP: Tensor, g_KP: Tensor, state: Sequence[Tensor], coefficients: Tensor
    ) -> None:
        """Update weights and optimizer state in place; `coefficients` is (C, K, 1)."""
        ...

    def entry(
        self, group: Group, number: int, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """Return torch's own optimizer state of a weight after so many updates."""
        ...


@dataclass(frozen=True)
class Sgd:
    """torch.optim.SGD, without dampening."""

    nesterov: bool
    state_names: tuple[str, ...] = ("momentum_buffer",)

    def coefficients(self, group: Group, number: int) -> tuple[float, ...]:
        return group["lr"], group["momentum"], group["weight_decay"]

    def step(
        self, w_KP: Tensor, g_KP: Tensor, state: Sequence[Tensor], coefficients: Tensor
    ) -> None:
        lr, momentum, decay = coefficients
        g_KP = torch.addcmul(g_KP, decay, w_KP)
        [velocity] = state
        velocity.mul_(momentum).add_(g_KP)  # starts at 0, so the first is the gradient, as in torch
        direction = torch.addcmul(g_KP, momentum, velocity) if self.nesterov else velocity
        w_KP.sub_(direction * lr)

    def entry(
        self, group: Group, number: int, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        return dict(state) if group["momentum"] else {}


@dataclass(frozen=True)
class Adam:
    """torch.optim.Adam and AdamW."""

    decoupled: bool
    state_names: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def coefficients(self, group: Group, number: int) -> tuple[float, ...]:
        lr, (beta, gamma), decay = group["lr"], group["betas"], group["weight_decay"]
        return (
            1 - beta,
            gamma,
            1 - gamma,
            lr / (1 - beta**number),
            math.sqrt(1 - gamma**number),
            group["eps"],
            1 - lr * decay if self.decoupled else decay,
        )

    def step(
        self, w_KP: Tensor, g_KP: Tensor, state: Sequence[Tensor], coefficients: Tensor
    ) -> None:
        one_minus_beta, gamma, one_minus_gamma, size, correction, eps, decay = coefficients
        if self.decoupled:
            w_KP.mul_(decay)
        else:
            g_KP = torch.addcmul(g_KP, decay, w_KP)
        mean, square = state
        mean.lerp_(g_KP, one_minus_beta.expand_as(mean))
        square.mul_(gamma).add_((g_KP * g_KP).mul_(one_minus_gamma))
        root = square.sqrt().div_(correction).add_(eps)
        w_KP.sub_((mean * size).div_(root))

    def entry(
        self, group: Group, number: int, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        return {"step": torch.tensor(float(number)), **state} if number else {}


def matching_optimizer(optimizer: torch.optim.Optimizer) -> Optimizer:
    """Return the optimizer that updates many trials as this one updates one trial.

    Raises:
        Unbatchable: there is none, or it does not support an option of this one.
    """
    kind = type(optimizer)
    if kind not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        raise Unbatchable(
            f"the optimizer is {name_of(optimizer)}; "
            "trials that train at once know SGD, Adam and AdamW"
        )
    first = optimizer.param_groups[0]
    for group in optimizer.param_groups:
        for name in FLAGS:
            if group.get(name):
                raise Unbatchable(
                    f"{kind.__name__} has {name} {group[name]}; trials that train at once do "
                    "without it"
                )
    if kind is torch.optim.SGD:
        return Sgd(first["nesterov"])
    return Adam(bool(first.get("decoupled_weight_decay")) or kind is torch.optim.AdamW)
