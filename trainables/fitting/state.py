"""What a Task's training needs to go on, beside the clock.

Steps come from the order, learning rates from the order and the step, and the generators are
seeded at each step (randomness.py), so none of them is in it; a checkpoint amid a step holds the
generators too (saving.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.fitting.divergence import Guard
from trainables.fitting.precision import Scaler
from trainables.fitting.tallies import empty
from trainables.optim.averaging import Ema
from trainables.optim.schedules import Plateau


@dataclass
class Marks:
    """Small things that training remembers from update to update."""

    losses: Tensor  # tally of this place's losses in the step that is under way
    slower: float = 1.0  # factor on the learning rate, after ways back
    each: float = 1.0  # values of the loss of a sample, as the last update had them

    @classmethod
    def fresh(cls, device: torch.device) -> "Marks":
        """Those of a trial that begins."""
        return cls(empty(device))


@dataclass
class TrainingState:
    """All that updates change."""

    model: nn.Module  # as the strategy sharded it
    optimizer: torch.optim.Optimizer
    scaler: Scaler
    average: Ema | None
    plateau: Plateau | None
    guard: Guard | None  # None: what is not finite is seen in the reports
    marks: Marks
