"""A small training state, trained for some updates, and its checkpoint."""

from pathlib import Path

import torch
from torch import nn

from trainables.checkpoints.snapshot import take
from trainables.checkpoints.storing import write
from trainables.optim.averaging import Ema
from trainables.optim.schedules import Plateau
from trainables.training_state import precision
from trainables.training_state.divergence import LossSpikeDetector
from trainables.training_state.loop_state import LoopState, TrainingState

CPU = torch.device("cpu")


class Tied(nn.Module):
    """A model with weights, a weight of two names, buffers, and a module with a text."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.BatchNorm1d(width)
        self.last, self.again = nn.Linear(width, width), nn.Linear(width, width)
        self.again.weight = self.last.weight
        self.word = "none"

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        return self.again(self.last(self.norm(self.first(x_BF))))

    def get_extra_state(self) -> str:
        return self.word

    def set_extra_state(self, state: str) -> None:
        self.word = state


def fresh(lr: float = 0.1, kind=torch.optim.AdamW, width: int = 4, **options) -> TrainingState:
    model = Tied(width)
    return TrainingState(
        model=model,
        optimizer=kind(model.parameters(), lr=lr, **options),
        scaler=precision.scaler("16-mixed", CPU, lambda values: values),
        average=Ema(model, 0.9),
        plateau=Plateau(),
        spike_detector=LossSpikeDetector("skip"),
        loop_state=LoopState.fresh(CPU),
    )


def update(state: TrainingState, times: int) -> None:
    for number in range(times):
        torch.manual_seed(number)
        state.optimizer.zero_grad()
        state.model(torch.randn(8, 3)).square().mean().backward()
        state.optimizer.step()
        state.average.update()
        state.plateau.observe(1.0)
        state.spike_detector.judge(1.0, 1.0)


def trained(**options) -> TrainingState:
    torch.manual_seed(7)
    state = fresh(**options)
    update(state, 3)
    state.model.word, state.loop_state.lr_backoff = "learned", 0.25
    state.scaler.load_state_dict({**state.scaler.state_dict(), "scale": 128.0})
    return state


def saved(folder: Path, state: TrainingState) -> Path:
    write(take(state), folder)
    return folder
