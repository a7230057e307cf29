"""A task that adapts a small base, for trials that share it.

Axes: N samples, B samples of a batch, T words.
"""

import random
import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Data, Task, Tensors
from trainables.data import Batch
from trainables.lora import LoraOptions, adapt, load_base

WORDS, WIDTH = 40, 24
LOADS = []  # sizes of the bases that this process has loaded
ALIVE = weakref.WeakSet()  # the models of this process


class Base(nn.Module):
    """Words, two layers with a residue, and a head."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.query = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, at: Tensor) -> Tensor:
        x = self.words(at).mean(dim=1) * self.scale
        return self.head(self.norm(x + self.value(torch.tanh(self.query(x)))))


def pretrained(width: int) -> nn.Module:
    """Return a base with the weights that every process gives it."""
    LOADS.append(width)
    return Base(width)


@dataclass(frozen=True)
class Tuned(Task):
    """Adapt a base whose weights do not depend on the trial."""

    lr: float = 0.01
    batch: int = 8
    rank: int = 2
    alpha: float = 4.0
    dropout: float = 0.0
    targets: str = "query value"
    kind: str = "adamw"
    whole: str = ""
    width: int = WIDTH
    fails_at: int = 0  # batch of the trial in which it raises; 0: never
    noise: float = 0.0  # of the losses: of torch's, numpy's and Python's generators
    own: bool = False  # load the base without load_base
    says: str = ""
    crowd: int = 0  # models for which memory is enough; 0: any number
    mute: bool = False  # reports something else than a number, which rank 0 refuses

    def build_model(self) -> nn.Module:
        model = self.adapted()
        ALIVE.add(model)
        return model

    def adapted(self) -> nn.Module:
        if self.own:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                base = pretrained(self.width)
        else:
            base = load_base(pretrained, self.width)
        if self.says:
            print(f"begin {self.says}", flush=True)  # noqa: T201 - the log is looked at
        if self.targets == "all":
            return base.requires_grad_(True)
        targets, whole = tuple(self.targets.split()), tuple(self.whole.split())
        return adapt(base, LoraOptions(self.rank, self.alpha, self.dropout, targets, whole))

    def load_data(self) -> Data:
        at_NT = torch.randint(WORDS, (45, 6), generator=torch.Generator().manual_seed(1))
        label_N = at_NT.sum(dim=1) % 4
        return Data(Tensors(at_NT[:32], label_N[:32]), Tensors(at_NT[32:], label_N[32:]))

    def summarize(self, metrics):
        return {"val/loss": "unknown"} if self.mute else {}

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if self.kind == "sgd":
            return torch.optim.SGD(weights, lr=self.lr, momentum=0.9)
        return torch.optim.AdamW(weights, lr=self.lr)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        at_BT, label_B = batch
        if 0 < self.crowd < len(ALIVE):
            raise torch.OutOfMemoryError("out of memory: there are too many models")
        if self.fails_at and model.training:
            model.calls = getattr(model, "calls", 0) + 1
            if model.calls == self.fails_at:
                raise RuntimeError("this trial gives up")
        losses_B = cross_entropy(model(at_BT), label_B, reduction="none")
        if self.says and model.training:
            print(f"batch of {self.says}", flush=True)  # noqa: T201
        if not self.noise:
            return losses_B
        drawn = torch.rand(()) + np.random.random() + random.random()
        return losses_B * (1 + self.noise * drawn)
