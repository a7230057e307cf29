"""A decoder-only transformer: GPT-2 with what has replaced its parts since.

Sources: GPT-2, Radford et al., Language Models are Unsupervised Multitask Learners (2019), with
norms before the layers; RMSNorm, Zhang & Sennrich (2019); rotary positions, Su et al., RoFormer
(2021), section 3.4.2; SwiGLU, Shazeer, GLU Variants Improve Transformer (2020), equation 6; tied
weights, Press & Wolf, Using the Output Embedding to Improve Language Models (2017).

Axes: B samples, T tokens, C channels, H heads, D channels of a head, V words of the vocabulary.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from trainables.parallel.plan import How

BASE = 10_000.0  # of the wavelengths of positions, as in the paper
DEVIATION = 0.02  # of new weights, as GPT-2's
EPSILON = 1e-5  # of norms: torch's own depends on the number format
MULTIPLE = 16  # of the channels inside an MLP, which ranks and kernels divide


@dataclass(frozen=True)
class Sizes:
    """What a Gpt is made of."""

    vocabulary: int
    length: int  # tokens that it can look back on, its own included
    layers: int
    width: int  # channels
    heads: int
    dropout: float = 0.0
    tie: bool = True  # the output layer's weights are those of the embedding

    def __post_init__(self) -> None:
        for name, least in (("vocabulary", 1), ("length", 2), ("layers", 1), ("heads", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; give {least} or more")
        if self.width < 1 or self.width % (2 * self.heads):
            raise ValueError(
                f"width is {self.width}, heads is {self.heads}; give a width that is a multiple of "
                f"{2 * self.heads}, since positions turn pairs of a head's channels"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; give 0 or more, below 1")


class Cache:
    """The keys and values of the tokens that a block has seen, for those that come after them."""

    def __init__(self) -> None:
        self.pair_BHTD: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return 0 if self.pair_BHTD is None else self.pair_BHTD[0].shape[2]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, with those of more tokens (B, H, T, D)."""
        if self.pair_BHTD is not None:
            past_key, past_value = self.pair_BHTD
            key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        self.pair_BHTD = key, value
        return key, value


class Attention(nn.Module):
    """Each token looks at itself and at those before it."""

    turns: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.channels = sizes.width // sizes.heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4)
        )
        # One a block, and in no checkpoint: a rank of a pipeline has blocks alone.
        self.register_buffer("turns", turns(sizes.length, self.channels), persistent=False)
        self.cache: Cache | None = None  # while a text is written; `forward` adds to it

    def forward(self, x_BTC: Tensor) -> Tensor:
        # As many heads as there are: ranks of a tensor group have a share of them.
        query, key, value = (
            layer(x_BTC).unflatten(2, (-1, self.channels)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        start = 0 if self.cache is None else len(self.cache)
        turns_2TD = self.turns[:, start : start + x_BTC.shape[1]]
        query, key = rotate(query, turns_2TD), rotate(key, turns_2TD)
        if self.cache is not None:
            key, value = self.cache.extend(key, value)
        # A single token is the last one, and sees all others; several begin a text.
        causal = x_BTC.shape[1] > 1
        found_BHTD = scaled_dot_product_attention(query, key, value, is_causal=causal)
        found: Tensor = self.output(found_BHTD.transpose(1, 2).flatten(2))
        return found


class Mlp(nn.Module):
    """SwiGLU: as many weights as a layer of 4 times the width and one back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inside = MULTIPLE * math.ceil(8 * width / 3 / MULTIPLE)
        self.gate, self.up = (nn.Linear(width, inside, bias=False) for _ in range(2))
        self.down = nn.Linear(inside, width, bias=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        found: Tensor = self.down(silu(self.gate(x_BTC)) * self.up(x_BTC))
        return found


class Block(nn.Module):
    """Attention, then an MLP, each added to what it sees."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.before, self.after = (nn.RMSNorm(sizes.width, eps=EPSILON) for _ in range(2))
        self.attention, self.mlp = Attention(sizes), Mlp(sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTC = x_BTC + self.dropout(self.attention(self.before(x_BTC)))
        found: Tensor = x_BTC + self.dropout(self.mlp(self.after(x_BTC)))
        return found


class Gpt(nn.Sequential):
    """Tokens (B, T) to the logits of the next ones (B, T, V).

    It is a plain nn.Sequential of layers that take and give one tensor, so that each can be
    recomputed, sharded, or given to another rank of a pipeline.
    """

    def __init__(self, sizes: Sizes) -> None:
        embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        parts: dict[str, nn.Module] = {
            "embedding": embedding,
            "dropout": nn.Dropout(sizes.dropout),
        }
        parts |= {f"block{number}": Block(sizes) for number in range(sizes.layers)}
        norm = nn.RMSNorm(sizes.width, eps=EPSILON)
        output = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        parts["head"] = nn.Sequential(OrderedDict(norm=norm, output=output))
        super().__init__(OrderedDict(parts))
        self.sizes = sizes
        initialize(self)
        if sizes.tie:
            output.weight = embedding.weight


@torch.no_grad()
def initialize(model: Gpt) -> None:
    """New weights as GPT-2's: what adds to the residual stream is as much smaller as it is deep."""
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            adds = name.endswith(("attention.output.weight", "mlp.down.weight"))
            deep = math.sqrt(2 * model.sizes.layers) if adds else 1.0
            nn.init.normal_(weight, std=DEVIATION / deep)


def plan(model: Gpt) -> Mapping[str, How]:
    """How ranks of a tensor group split it: by heads, and by channels inside MLPs."""
    colwise = ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.up")
    rowwise = ("attention.output", "mlp.down")
    found: dict[str, How] = {}
    for number in range(model.sizes.layers):
        found |= {f"block{number}.{name}": "colwise" for name in colwise}
        found |= {f"block{number}.{name}": "rowwise" for name in rowwise}
    return found


def turns(length: int, channels: int) -> Tensor:
    """Cosines and sines of each position's angles (2, T, D/2). Source: Su et al., equation 15."""
    powers = torch.arange(0, channels, 2, dtype=torch.float64) / channels
    angles = torch.arange(length, dtype=torch.float64)[:, None] * BASE**-powers
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x_BHTD: Tensor, turns_2TD: Tensor) -> Tensor:
    """Turn pairs of channels by the angles of their positions. Source: Su et al., equation 34.

    Channels of the first half pair with those of the second: the order of a head's channels is
    arbitrary, and halves are quicker to take than every second one.
    """
    cosines, sines = turns_2TD.to(x_BHTD.dtype)
    first, second = x_BHTD.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
