"""BoTorch as its tutorials have it, by hand: its default process on the unit cube, labels as one
column each, and the logarithm of noisy expected improvement.
"""

from typing import Any

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from numpy.typing import NDArray
from scipy.stats import qmc

from peers.method import Params, axes
from peers.threads import seed_torch
from searchers import Space

Array = NDArray[np.float64]
MOST_START = 10


class BoTorch:
    """Starts with twice as many Sobol points as parameters, at most 10."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        seed_torch(seed)
        self.space = space
        self.widths = {
            name: len(axis.labels) if axis.kind == "label" else 1
            for name, axis in axes(space).items()
        }
        self.start = qmc.Sobol(len(self.widths), seed=seed)
        self.wanted = min(MOST_START, 2 * len(self.widths))
        self.told: list[tuple[Array, float]] = []
        self.pending: list[Array] = []

    def ask(self) -> tuple[Params, Any]:
        if not self.told or len(self.told) + len(self.pending) < self.wanted:
            unit = self.start.random(1)[0]
        else:
            unit = self._unit(self._best())
        params = self.space.decode(unit)
        column = self._encoded(params)
        self.pending.append(column)
        return params, column

    def tell(self, asked: Any, loss: float) -> None:
        self.pending = [column for column in self.pending if column is not asked]
        self.told.append((asked, loss))

    def add(self, params: Params, loss: float) -> None:
        self.told.append((self._encoded(params), loss))

    def _best(self) -> Array:
        x = torch.tensor(np.array([column for column, _ in self.told]))
        y = -torch.tensor([[loss] for _, loss in self.told], dtype=torch.double)
        model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        pending = torch.tensor(np.array(self.pending)) if self.pending else None
        acquisition = qLogNoisyExpectedImprovement(model, x, X_pending=pending)
        cube = torch.stack([torch.zeros(x.shape[1]), torch.ones(x.shape[1])]).double()
        found, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=8, raw_samples=256)
        column: Array = found[0].numpy()
        return column

    def _encoded(self, params: Params) -> Array:
        columns: list[float] = []
        for name, width in self.widths.items():
            unit = self.space[name].to_unit(params[name]) if name in params else 0.5
            chosen = int(unit * width) if name in params else -1
            columns += [unit] if width == 1 else [float(index == chosen) for index in range(width)]
        return np.array(columns)

    def _unit(self, column: Array) -> Array:
        """Of a label's columns the largest counts."""
        units, place = [], 0
        for width in self.widths.values():
            part = column[place : place + width]
            units.append(part[0] if width == 1 else (np.argmax(part) + 0.5) / width)
            place += width
        return np.array(units)
