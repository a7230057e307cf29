"""CMA-ES as its author's package has it, on the unit cube with its bounds.

It asks for a generation at a time and is told one: its configurations are handed out one by one.
"""

import warnings
from typing import Any

import cma
import numpy as np

from peers.method import Params
from searchers import Space

SPREAD = 0.3  # the first standard deviation: a third of the cube, as the package advises


class CMAES:
    def __init__(self, space: Space, seed: int, budget: int) -> None:
        self.space = space
        start = np.full(len(space.searched), 0.5)
        options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9}  # a seed of 0 is the clock's
        with warnings.catch_warnings(action="ignore"):
            self.strategy = cma.CMAEvolutionStrategy(start, SPREAD, options)
        self.waiting: list[Any] = []
        self.told: list[tuple[Any, float]] = []

    def ask(self) -> tuple[Params, Any]:
        if not self.waiting:
            self.waiting = list(self.strategy.ask())
        point = self.waiting.pop(0)
        return self.space.decode(np.clip(point, 0.0, 1.0)), point

    def tell(self, asked: Any, loss: float) -> None:
        self.told.append((asked, loss))
        if len(self.told) == self.strategy.popsize:
            self.strategy.tell(*zip(*self.told, strict=True))
            self.told = []

    def add(self, params: Params, loss: float) -> None:
        raise NotImplementedError("a generation has no place for other results")
