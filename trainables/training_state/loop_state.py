"""The state that a Task's training needs to continue.

The order gives the steps, the order and the step give the learning rates, and the generators are
seeded at each epoch (randomness.py), so none of these is part of the state; a checkpoint saved
within an epoch also holds the generators (checkpoints/saver.py).
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

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

    losses: Tensor  # tallies of this rank's losses since the last report, by turn: (T, 2)
    lr_backoff: float = 1.0  # factor on the learning rate, lowered by rollbacks
    elements_per_sample: float = 1.0  # loss values of a sample, as in the last update
    amid: bool = False  # whether an epoch is under way, so that its random numbers go on
    # Trained since the trial began; counted where a step is a token.
    samples: int = 0
    tokens: float = 0.0

    @classmethod
    def fresh(cls, device: torch.device) -> "LoopState":
        """Return the state at the beginning of a trial."""
        return cls(empty(device)[None])


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
    weights: int = 0  # numbers that the whole model is made of
    # Options of each group of the optimizer, as they are before the first update.
    first_options: list[dict[str, object]] = field(init=False)

    def __post_init__(self) -> None:
        self.first_options = [deepcopy(dict(options)) for options in self.group_options()]

    def group_options(self) -> list[Mapping[str, object]]:
        """Return each group of the optimizer without its weights, and without lr.

        Some optimizers keep state there: an estimate of the step size, a count, a sum of weights.
        The learning rate is given by the order and the step.
        """
        return [
            {key: value for key, value in group.items() if key not in ("params", "lr")}
            for group in self.optimizer.param_groups
        ]
