"""Forecast a chaotic series with its uncertainty: three quantiles of each of the next 24 values.

Series: Mackey & Glass, Oscillation and Chaos in Physiological Control Systems (1977), with noise
as of a sensor: synthetic, and a usual benchmark of forecasters. The last quarter is held out.

Axes: N windows, B of a batch, T values before, H values ahead, Q quantiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from trainables import Data, Task, Tensors
from trainables.data import Batch

LENGTH, AHEAD, NOISE = 4000, 24, 0.05
QUANTILES_Q = torch.tensor([0.1, 0.5, 0.9])


@dataclass(frozen=True)
class Forecast(Task):
    """Report val/loss (mean quantile loss), val/error (mean absolute) and val/coverage.

    The coverage is the share of values between the outer quantiles: 0.8 if these are right.
    """

    history: int = 24  # values that the network sees
    width: int = 64
    layers: int = 1
    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        widths = [self.history] + [self.width] * self.layers
        hidden = [
            part
            for before, after in pairwise(widths)
            for part in (nn.Linear(before, after), nn.ReLU(), nn.Dropout(self.dropout))
        ]
        outputs = nn.Linear(widths[-1], AHEAD * len(QUANTILES_Q))
        return nn.Sequential(*hidden, outputs, nn.Unflatten(1, (AHEAD, len(QUANTILES_Q))))

    def load_data(self) -> Data:
        value_N = series()
        parts = value_N[: 3 * LENGTH // 4], value_N[3 * LENGTH // 4 - self.history :]
        windows = (part.unfold(0, self.history + AHEAD, 1) for part in parts)
        return Data(*(Tensors(*each.tensor_split([self.history], dim=1)) for each in windows))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the quantile losses (B, H, Q): Koenker & Bassett, Regression Quantiles (1978)."""
        before_BT, after_BH = batch
        miss_BHQ = after_BH[..., None] - model(before_BT)
        return torch.maximum(QUANTILES_Q * miss_BHQ, (QUANTILES_Q - 1) * miss_BHQ)

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        before_BT, after_BH = batch
        low_BH, middle_BH, high_BH = model(before_BT).unbind(-1)
        return {
            "loss": self.compute_losses(model, batch).mean((1, 2)),
            "error": (after_BH - middle_BH).abs().mean(1),
            "coverage": ((low_BH <= after_BH) & (after_BH <= high_BH)).float().mean(1),
        }


def series() -> Tensor:
    """Return the series (N,), standardized, by Euler's steps of a tenth; each 10th is kept."""
    random = np.random.default_rng(0)
    delay, steps = 170, 10 * LENGTH
    x = np.full(delay + steps, 1.2)
    for t in range(delay, delay + steps - 1):
        late = x[t - delay]
        x[t + 1] = x[t] + 0.1 * (0.2 * late / (1 + late**10) - 0.1 * x[t])
    kept_N = x[delay::10] + NOISE * x.std() * random.standard_normal(LENGTH)
    return torch.tensor((kept_N - kept_N.mean()) / kept_N.std()).float()
