"""Networks for small images: plain convolutions, a residual network, a vision transformer.

Axes: B images, C channels, H and W pixels, P patches, D features.
Sources: He et al., Identity Mappings in Deep Residual Networks (2016), figure 4e; Dosovitskiy et
al., An Image is Worth 16x16 Words (2021), section 3.1, with the mean over patches of its appendix
D.3 in place of a class token.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

Kind = Literal["cnn", "resnet", "vit"]

STAGES = 3  # of cnn and resnet: each but the first halves the image and doubles the channels
HEAD = 16  # features of an attention head


@dataclass(frozen=True)
class Shape:
    """The kind and sizes of a network."""

    kind: Kind = "cnn"
    width: int = 32  # channels of the first stage, or features of vit
    depth: int = 1  # blocks: per stage in cnn and resnet, in all in vit
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; choose one of {', '.join(get_args(Kind))}")
        if self.width < 1 or self.depth < 1:
            raise ValueError(f"width is {self.width}, depth {self.depth}; give 1 or more of each")
        if self.kind == "vit" and self.width % HEAD:
            raise ValueError(f"width is {self.width}; of a vit it is a multiple of {HEAD}")


def build(shape: Shape, channels: int, side: int, classes: int) -> nn.Module:
    """Build a network from images (B, channels, side, side) to scores (B, classes)."""
    if shape.kind == "vit":
        return _vit(shape, channels, side, classes)
    widths = [shape.width * 2**stage for stage in range(STAGES)]
    layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)]
    block = Residual if shape.kind == "resnet" else _convolution
    for stage, (before, after) in enumerate(pairwise([widths[0], *widths])):
        layers.append(block(before, after, 2 if stage else 1))
        layers.extend(block(after, after, 1) for _ in range(shape.depth - 1))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(shape.dropout))
    norm = (nn.BatchNorm2d(widths[-1]), nn.ReLU())
    return nn.Sequential(*layers, *norm, *head, nn.Linear(widths[-1], classes))


def _convolution(before: int, after: int, stride: int) -> nn.Module:
    convolution = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
    return nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), convolution)


class Residual(nn.Module):
    """A residual block of two convolutions, each after normalization."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(before, after, stride)
        self.second = _convolution(after, after, 1)
        same = before == after and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        sum_BCHW: Tensor = self.around(x_BCHW) + self.second(self.first(x_BCHW))
        return sum_BCHW


def _vit(shape: Shape, channels: int, side: int, classes: int) -> nn.Module:
    patch = max(2, side // 7)  # some 7 x 7 patches
    if side % patch:
        raise ValueError(f"images of {side} pixels a side are not cut into patches of {patch}")
    width = shape.width
    return nn.Sequential(
        nn.Conv2d(channels, width, patch, patch),
        nn.Flatten(2),
        Places(width, (side // patch) ** 2),
        *(Attending(width, shape.dropout) for _ in range(shape.depth)),
        nn.LayerNorm(width),
        Mean(),
        nn.Linear(width, classes),
    )


class Places(nn.Module):
    """A layer that transposes patches (B, D, P) to rows (B, P, D) and adds position embeddings."""

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.places_PD = nn.Parameter(0.02 * torch.randn(patches, width))

    def forward(self, x_BDP: Tensor) -> Tensor:
        return x_BDP.transpose(1, 2) + self.places_PD


class Attending(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.queries = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BPD: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (-1, HEAD)).transpose(1, 2)
            for part in self.queries(self.norm(x_BPD)).chunk(3, dim=2)
        )
        attended = scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x_BPD = x_BPD + self.dropout(self.out(attended))
        mixed: Tensor = x_BPD + self.dropout(self.mlp(x_BPD))
        return mixed


class Mean(nn.Module):
    """A layer that averages over patches."""

    def forward(self, x_BPD: Tensor) -> Tensor:
        return x_BPD.mean(dim=1)
