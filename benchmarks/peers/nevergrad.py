"""Nevergrad's own choice of a method (NGOpt), by space and budget.

It takes several losses, and excesses over limits.
"""

from collections.abc import Sequence
from typing import Any

import nevergrad
import numpy as np

from peers.method import Axis, Params, active, axes
from searchers import Space


class NGOpt:
    def __init__(self, space: Space, seed: int, budget: int, objectives: int = 1) -> None:
        self.space, self.axes = space, axes(space)
        instrumented = nevergrad.p.Dict(
            **{name: _parameter(axis) for name, axis in self.axes.items()}
        )
        instrumented.random_state = np.random.RandomState(seed)
        self.optimizer = nevergrad.optimizers.NGOpt(instrumented, budget=budget)
        self.optimizer.num_objectives = objectives

    def ask(self) -> tuple[Params, Any]:
        candidate = self.optimizer.ask()
        full = {name: axis.backward(candidate.value[name]) for name, axis in self.axes.items()}
        return active(self.space, full), candidate

    def tell(self, asked: Any, loss: float | Sequence[float], excess: Sequence[float] = ()) -> None:
        violations = [max(value, 0.0) for value in excess]
        self.optimizer.tell(asked, loss, violations or None)

    def add(self, params: Params, loss: float) -> None:
        raise NotImplementedError("conditional values that are missing have no place in it")


def _parameter(axis: Axis) -> Any:
    if axis.kind == "label":
        return nevergrad.p.Choice(axis.labels)
    kind = nevergrad.p.Log if axis.log else nevergrad.p.Scalar
    scalar = kind(lower=axis.low, upper=axis.high)
    return scalar.set_integer_casting() if axis.kind == "int" else scalar
