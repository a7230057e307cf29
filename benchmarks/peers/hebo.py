"""HEBO with its own settings; it has no word for pending evaluations."""

from typing import Any

import numpy as np
import pandas as pd
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO as Optimiser

from peers.method import Axis, Params, active, axes, filled
from peers.threads import seed_torch
from searchers import Space


class HEBO:
    def __init__(self, space: Space, seed: int, budget: int) -> None:
        seed_torch(seed)
        self.space, self.axes = space, axes(space)
        design = DesignSpace().parse([_parameter(axis) for axis in self.axes.values()])
        self.hebo = Optimiser(design, scramble_seed=seed)

    def ask(self) -> tuple[Params, Any]:
        row = self.hebo.suggest()
        full = {name: axis.backward(row[name].iloc[0]) for name, axis in self.axes.items()}
        return active(self.space, full), row

    def tell(self, asked: Any, loss: float) -> None:
        self.hebo.observe(asked, np.array([[loss]]))

    def add(self, params: Params, loss: float) -> None:
        full = filled(self.space, params)
        row = {name: axis.forward(full[name]) for name, axis in self.axes.items()}
        self.tell(pd.DataFrame([row]), loss)


def _parameter(axis: Axis) -> dict[str, Any]:
    if axis.kind == "label":
        return {"name": axis.name, "type": "cat", "categories": axis.labels}
    bounds = {"name": axis.name, "lb": axis.low, "ub": axis.high}
    if axis.log:
        return {**bounds, "type": "pow_int" if axis.kind == "int" else "pow", "base": 10}
    return {**bounds, "type": "int" if axis.kind == "int" else "num"}
