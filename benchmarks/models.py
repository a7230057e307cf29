"""Models and data that training loops are compared on: Tasks, so that all loops train the same.

Axes: N samples, B samples of a batch, T tokens of a sample, C channels, H and W pixels.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from trainables import Data, Task, Tensors
from trainables.data import Batch

sys.path.append(str(Path(__file__).parents[1] / "examples" / "language_model"))
import gpt


@dataclass(frozen=True)
class Sized(Task):
    """A Task whose epoch has just so many updates."""

    lr: float = 1e-4
    updates: int = 20

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=self.lr, fused=True)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x, y_B = batch
        return cross_entropy(model(x), y_B, reduction="none")

    def inputs(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """What is learned: x and labels."""
        raise NotImplementedError

    def load_data(self) -> Data:
        columns = self.inputs(self.updates * self.batch, torch.Generator().manual_seed(1))
        return Data(Tensors(*columns), Tensors(*(column[: self.batch] for column in columns)))


@dataclass(frozen=True)
class Mlp(Sized):
    """So small that the loop itself is what takes the time."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))

    def inputs(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return torch.randn(samples, 16, generator=generator), torch.arange(samples) % 10


@dataclass(frozen=True)
class Cnn(Sized):
    """That of examples/digits.yaml."""

    def build_model(self) -> nn.Module:
        from trainables.zoo.digits import DigitsCNN

        return DigitsCNN(dropout=0.0).build_model()

    def inputs(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return torch.randn(samples, 1, 8, 8, generator=generator), torch.arange(samples) % 10


@dataclass(frozen=True)
class Gpt(Sized):
    """That of examples/gpt_text.yaml; by default of about GPT-2's size, 124 million parameters."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    tokens: int = 1024
    words: int = 50304

    def build_model(self) -> nn.Module:
        sizes = gpt.Sizes(self.words, self.tokens, self.layers, self.width, self.heads)
        return gpt.Gpt(sizes)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_BT, y_BT = batch
        return cross_entropy(model(x_BT).flatten(0, 1), y_BT.flatten(), reduction="none")

    def inputs(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        text = torch.randint(self.words, (samples, self.tokens + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


@dataclass(frozen=True)
class ResNet(Sized):
    """ResNet-50 on images of 224 x 224 pixels. He et al. (2016), table 1; strides as in torch's."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    pixels: int = 224

    def build_model(self) -> nn.Module:
        blocks: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(self.depths):
            for place in range(depth):
                width = 64 * 2**stage
                blocks.append(_Bottleneck(channels, width, 2 if stage and not place else 1))
                channels = 4 * width
        return nn.Sequential(
            nn.Sequential(_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
            *blocks,
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)),
        )

    def inputs(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x_NCHW = torch.randn(samples, 3, self.pixels, self.pixels, generator=generator)
        return x_NCHW, torch.arange(samples) % 1000


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolution(inputs, width, 1),
            nn.ReLU(),
            _convolution(width, width, 3, stride),
            nn.ReLU(),
            _convolution(width, 4 * width, 1),
        )
        same = stride == 1 and inputs == 4 * width
        self.past = nn.Identity() if same else _convolution(inputs, 4 * width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.past(x))


MODELS: dict[str, Callable[..., Any]] = {
    "mlp": Mlp,
    "digits": lambda **sizes: Cnn(**{"batch": 64, **sizes}),
    "gpt-small": lambda **sizes: Gpt(
        **{"batch": 8, "layers": 4, "width": 128, "heads": 4, "tokens": 64, "words": 512, **sizes}
    ),
    "gpt": lambda **sizes: Gpt(**{"batch": 16, **sizes}),
    "resnet-small": lambda **sizes: ResNet(
        **{"batch": 8, "depths": (1, 1, 1, 1), "pixels": 32, **sizes}
    ),
    "resnet": lambda **sizes: ResNet(**{"batch": 256, **sizes}),
}
