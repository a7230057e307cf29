"""A small model for tests of adapters, on words.

Axes: B samples, T tokens.
"""

import torch
from torch import Tensor, nn

from trainables.lora import LoraOptions, adapt, adapters

AT = torch.arange(22).reshape(2, 11) % 11
OPTIONS = LoraOptions(rank=3, alpha=6.0, targets=("*.query", "*.value", "words"), whole=("head",))


class Net(nn.Module):
    """A classifier of words, by layers named like those of pretrained models."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.block = nn.ModuleDict({"query": nn.Linear(6, 8), "value": nn.Linear(8, 6, bias=False)})
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, at: Tensor) -> Tensor:
        hidden = torch.tanh(self.block["query"](self.words(at)))
        return self.head(self.norm(self.block["value"](hidden)))


def tuned(model: nn.Module, options: LoraOptions = OPTIONS) -> nn.Module:
    """Return the adapted model, with adapters that change its output."""
    adapt(model, options)
    for layer in adapters(model).values():
        nn.init.normal_(layer.lora_A)
        nn.init.normal_(layer.lora_B)
    return model
