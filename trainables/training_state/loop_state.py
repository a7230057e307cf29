"""The state that a Task's training needs to continue.

The order gives the steps, the order and the step give the learning rates, and the generators are
seeded at each step (randomness.py), so none of these is part of the state; a checkpoint saved
within a step also holds the generators (checkpoints/saver.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.optim.averaging import Ema
from trainables.optim.schedules import Plateau
from trainables.training_state.divergence import LossSpikeDetector
from trainables.training_state.precision import Scaler
from trainables.training_state.tallies import empty


@dataclass
class LoopState:
    """Small values that training remembers from update to update."""

    losses: Tensor  # tally of this rank's losses in the current step
    lr_backoff: float = 1.0  # factor on the learning rate, lowered by rollbacks
    elements_per_sample: float = 1.0  # loss values of a sample, as in the last update

    @classmethod
    def fresh(cls, device: torch.device) -> "LoopState":
        """Return the state at the beginning of a trial."""
        return cls(empty(device))


@dataclass
class TrainingState:
    """Everything that updates change."""

    model: nn.Module  # as the strategy sharded it
    optimizer: torch.optim.Optimizer
    scaler: Scaler
    average: Ema | None
    plateau: Plateau | None
    spike_detector: LossSpikeDetector | None  # None: reports show losses that are not finite
    loop_state: LoopState
