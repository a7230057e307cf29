"""Updates of K trials at once, each with its own values.

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

from trainables.batched.refusals import Unbatchable

Group = Mapping[str, Any]  # an entry of an optimizer's param_groups
FLAGS = ("maximize", "amsgrad", "differentiable", "dampening")  # what none of them may have


class Optimizer(Protocol):
    """One kind of update."""

    @property
    def kept(self) -> tuple[str, ...]:
        """What it keeps of each weight, by torch's names."""
        ...

    def coefficients(self, group: Group, number: int) -> tuple[float, ...]:
        """What the trial's update of this number, from 1, is to be computed with."""
        ...

    def step(self, w_KP: Tensor, g_KP: Tensor, kept: Sequence[Tensor], given: Tensor) -> None:
        """Update the weights and what is kept of them, in place; `given` is (C, K, 1)."""
        ...

    def entry(
        self, group: Group, number: int, kept: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """What torch's own would keep of a weight after so many updates."""
        ...


@dataclass(frozen=True)
class Sgd:
    """torch.optim.SGD, without dampening."""

    nesterov: bool
    kept: tuple[str, ...] = ("momentum_buffer",)

    def coefficients(self, group: Group, number: int) -> tuple[float, ...]:
        return group["lr"], group["momentum"], group["weight_decay"]

    def step(self, w_KP: Tensor, g_KP: Tensor, kept: Sequence[Tensor], given: Tensor) -> None:
        lr, momentum, decay = given
        g_KP = torch.addcmul(g_KP, decay, w_KP)
        [velocity] = kept
        velocity.mul_(momentum).add_(g_KP)  # of 0 at first: torch begins with the gradient itself
        found = torch.addcmul(g_KP, momentum, velocity) if self.nesterov else velocity
        w_KP.sub_(found * lr)

    def entry(
        self, group: Group, number: int, kept: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        return dict(kept) if group["momentum"] else {}


@dataclass(frozen=True)
class Adam:
    """torch.optim.Adam and AdamW."""

    decoupled: bool
    kept: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

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

    def step(self, w_KP: Tensor, g_KP: Tensor, kept: Sequence[Tensor], given: Tensor) -> None:
        fresh, gamma, fresh_square, size, correction, eps, decay = given
        if self.decoupled:
            w_KP.mul_(decay)
        else:
            g_KP = torch.addcmul(g_KP, decay, w_KP)
        mean, square = kept
        mean.lerp_(g_KP, fresh.expand_as(mean))
        square.mul_(gamma).add_((g_KP * g_KP).mul_(fresh_square))
        root = square.sqrt().div_(correction).add_(eps)
        w_KP.sub_((mean * size).div_(root))

    def entry(
        self, group: Group, number: int, kept: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        return {"step": torch.tensor(float(number)), **kept} if number else {}


def alike(optimizer: torch.optim.Optimizer) -> Optimizer:
    """What updates many trials as this one does one.

    Raises:
        Unbatchable: there is none, or an option of it stands in the way.
    """
    kind = type(optimizer)
    if kind not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        raise Unbatchable(
            f"the optimizer is {kind.__name__}; trials that train at once know SGD, Adam and AdamW"
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
