"""Networks for rows of a table: a perceptron, one with residual blocks, and the FT-Transformer.

Source: Gorishniy et al., Revisiting Deep Learning Models for Tabular Data (2021): the MLP of its
section 3.1; the ResNet of 3.2, with LayerNorm in place of BatchNorm, since a batch of one row has
no variance; the FT-Transformer of 3.3: ReGLU, and no norm before the first attention.

Axes: B rows, F features (columns of a Layout), K categories, D channels, T tokens: the CLS token,
then one per feature.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from encoding import OTHER, Layout
from torch import Tensor, nn
from torch.nn.functional import relu, scaled_dot_product_attention

from trainables.parallel.plan import How, pairs

Kind = Literal["mlp", "resnet", "ft"]

EMBEDDED = 8  # channels of a category in mlp and resnet
MULTIPLE = 8  # divisor of a feed-forward part's inner channels, which ranks and kernels split


@dataclass(frozen=True)
class Shape:
    """The kind and sizes of a network."""

    kind: Kind = "mlp"
    width: int = 64  # channels; in ft, of each token
    depth: int = 2  # blocks
    heads: int = 4  # ft only
    dropout: float = 0.1  # in ft, within attention and the feed-forward parts

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}; choose one of {', '.join(get_args(Kind))}")
        for name in ("width", "depth", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.kind == "ft" and self.width % self.heads:
            raise ValueError(
                f"width is {self.width}, heads is {self.heads}; of ft the width is a multiple of "
                "the heads"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; give 0 or more, below 1")


def build(shape: Shape, layout: Layout, outputs: int) -> nn.Module:
    """Build a network from encoded rows (B, F) to predictions (B, outputs)."""
    width = shape.width
    if shape.kind == "ft":
        blocks = (Block(shape, index > 0) for index in range(shape.depth))
        head = (nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outputs))
        return nn.Sequential(Tokens(layout, width), *blocks, First(), *head)
    inside = layout.numbers + EMBEDDED * len(layout.kinds)
    if shape.kind == "resnet":
        residuals = (Residual(shape) for _ in range(shape.depth))
        head = (nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outputs))
        return nn.Sequential(Inputs(layout), nn.Linear(inside, width), *residuals, *head)
    layers: list[nn.Module] = []
    for index in range(shape.depth):
        inputs = width if index else inside
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(shape.dropout)]
    return nn.Sequential(Inputs(layout), *layers, nn.Linear(width, outputs))


def plan(model: nn.Module) -> dict[str, How]:
    """Return how ranks of a tensor group split the model: by heads, and by inner channels."""
    splits = pairs(model)
    split_of: dict[str, How] = {"output": "rowwise", "down": "rowwise"}
    for name, module in model.named_modules():
        if isinstance(module, Attention | Gated):
            splits |= {
                f"{name}.{part}": split_of.get(part, "colwise")
                for part, _ in module.named_children()
            }
    return splits


class Embedding(nn.Module):
    """Learned vectors for the codes of all categories; those of OTHER start at 0."""

    starts_K: Tensor

    def __init__(self, kinds: tuple[int, ...], width: int) -> None:
        super().__init__()
        ends_K = torch.tensor(kinds).cumsum(0)
        starts_K = ends_K - torch.tensor(kinds)
        self.register_buffer("starts_K", starts_K, persistent=False)
        values = torch.empty(sum(kinds), width).uniform_(-(width**-0.5), width**-0.5)
        values[starts_K + OTHER] = 0.0
        self.values = nn.Parameter(values)

    def forward(self, code_BK: Tensor) -> Tensor:
        return self.values[self.starts_K + code_BK.long()]


class Inputs(nn.Module):
    """The input layer: replaces the codes of categories in rows (B, F) by embeddings."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.numbers = layout.numbers
        self.embedding = Embedding(layout.kinds, EMBEDDED) if layout.kinds else None

    def forward(self, x_BF: Tensor) -> Tensor:
        if self.embedding is None:
            return x_BF
        embedded_BKD = self.embedding(x_BF[:, self.numbers :])
        return torch.cat([x_BF[:, : self.numbers], embedded_BKD.flatten(1)], dim=1)


class Residual(nn.Module):
    """A residual block of the ResNet."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.inside = nn.Sequential(
            nn.Linear(shape.width, 2 * shape.width),
            nn.ReLU(),
            nn.Dropout(shape.dropout),
            nn.Linear(2 * shape.width, shape.width),
        )

    def forward(self, x_BD: Tensor) -> Tensor:
        sum_BD: Tensor = x_BD + self.inside(self.norm(x_BD))
        return sum_BD


class Tokens(nn.Module):
    """The feature tokenizer: a learned direction per number, an embedding per category."""

    def __init__(self, layout: Layout, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.numbers = layout.numbers
        self.first_D = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.biases_FD = nn.Parameter(torch.empty(layout.features, width).uniform_(-bound, bound))
        if layout.numbers:
            shape = (layout.numbers, width)
            self.directions = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.embedding = Embedding(layout.kinds, width) if layout.kinds else None

    def forward(self, x_BF: Tensor) -> Tensor:
        parts = []
        if self.numbers:
            parts.append(x_BF[:, : self.numbers, None] * self.directions)
        if self.embedding is not None:
            parts.append(self.embedding(x_BF[:, self.numbers :]))
        features_BFD = torch.cat(parts, dim=1) + self.biases_FD
        first_B1D = self.first_D.expand(len(x_BF), 1, -1)
        return torch.cat([first_B1D, features_BFD], dim=1)


class Attention(nn.Module):
    """Self-attention over all tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.channels, self.dropout = shape.width // shape.heads, shape.dropout
        self.query, self.key, self.value, self.output = (
            nn.Linear(shape.width, shape.width) for _ in range(4)
        )

    def forward(self, x_BTD: Tensor) -> Tensor:
        # The number of heads is inferred: ranks of a tensor group hold a share of them.
        query, key, value = (
            layer(x_BTD).unflatten(2, (-1, self.channels)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        heads = scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        output: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return output


class Gated(nn.Module):
    """A ReGLU feed-forward part, with 4/3 of the width inside."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inside = MULTIPLE * -(-4 * shape.width // (3 * MULTIPLE))
        self.gate, self.up = (nn.Linear(shape.width, inside) for _ in range(2))
        self.down = nn.Linear(inside, shape.width)
        self.dropout = shape.dropout

    def forward(self, x_BTD: Tensor) -> Tensor:
        inside = relu(self.gate(x_BTD)) * self.up(x_BTD)
        output: Tensor = self.down(nn.functional.dropout(inside, self.dropout, self.training))
        return output


class Block(nn.Module):
    """A transformer block: attention, then the feed-forward part, each added to its input."""

    def __init__(self, shape: Shape, normed: bool) -> None:
        super().__init__()
        self.before = nn.LayerNorm(shape.width) if normed else nn.Identity()
        self.after = nn.LayerNorm(shape.width)
        self.attention, self.gated = Attention(shape), Gated(shape)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.before(x_BTD))
        output: Tensor = x_BTD + self.gated(self.after(x_BTD))
        return output


class First(nn.Module):
    """A layer that selects the CLS token."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD[:, 0]
