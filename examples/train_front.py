"""A small network on scikit-learn's digits: how well it reads, how large it is. See pareto.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import costs
from trainables.data import Batch, Data
from trainables.task import Task
from trainables.zoo.digits import digits

PIXELS, CLASSES = 64, 10


@dataclass(frozen=True)
class Reader(Task):
    """Hidden layers of one width."""

    layers: int = 1
    width: int = 32

    def build_model(self) -> nn.Module:
        widths = [PIXELS] + [self.width] * self.layers
        hidden = [
            part
            for before, after in pairwise(widths)
            for part in (nn.Linear(before, after), nn.ReLU())
        ]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], CLASSES))

    def load_data(self) -> Data:
        return digits()

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        return cross_entropy(model(images), labels, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels = batch
        return {"accuracy": model(images).argmax(dim=1) == labels}

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        return {"parameters": costs.parameters(model)}
