"""A decoder-only transformer: GPT-2 with modern replacements of its parts.

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

BASE = 10_000.0  # of the wavelengths of rotary positions, as in the paper
DEVIATION = 0.02  # of initial weights, as in GPT-2
EPSILON = 1e-5  # of norms: torch's default depends on the dtype
MULTIPLE = 16  # divisor of an MLP's inner channels, which ranks and kernels split


@dataclass(frozen=True)
class Sizes:
    """The sizes of a Gpt."""

    vocabulary: int
    length: int  # tokens of context, the current token included
    layers: int
    width: int  # channels
    heads: int
    dropout: float = 0.0
    tie: bool = True  # whether the output layer shares the weights of the embedding

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
    """A block's keys and values of past tokens, for generating the next ones."""

    def __init__(self) -> None:
        self.pair_BHTD: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return 0 if self.pair_BHTD is None else self.pair_BHTD[0].shape[2]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, H, T, D) of more tokens, and return all."""
        if self.pair_BHTD is not None:
            past_key, past_value = self.pair_BHTD
            key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        self.pair_BHTD = key, value
        return key, value


class Attention(nn.Module):
    """Causal self-attention: each token attends to itself and to those before it."""

    turns: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.channels = sizes.width // sizes.heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4)
        )
        # Each block has a copy, not saved: a rank of a pipeline may hold nothing but blocks.
        self.register_buffer("turns", turns(sizes.length, self.channels), persistent=False)
        self.cache: Cache | None = None  # during generation; `forward` appends to it

    def forward(self, x_BTC: Tensor) -> Tensor:
        # The number of heads is inferred: ranks of a tensor group hold a share of them.
        query, key, value = (
            layer(x_BTC).unflatten(2, (-1, self.channels)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        start = 0 if self.cache is None else len(self.cache)
        turns_2TD = self.turns[:, start : start + x_BTC.shape[1]]
        query, key = rotate(query, turns_2TD), rotate(key, turns_2TD)
        if self.cache is not None:
            key, value = self.cache.extend(key, value)
        # A single token is the last and attends to all others; several begin a text.
        causal = x_BTC.shape[1] > 1
        heads_BHTD = scaled_dot_product_attention(query, key, value, is_causal=causal)
        output_BTC: Tensor = self.output(heads_BHTD.transpose(1, 2).flatten(2))
        return output_BTC


class Mlp(nn.Module):
    """SwiGLU, with as many weights as an MLP of 4 times the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inside = MULTIPLE * math.ceil(8 * width / 3 / MULTIPLE)
        self.gate, self.up = (nn.Linear(width, inside, bias=False) for _ in range(2))
        self.down = nn.Linear(inside, width, bias=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        output_BTC: Tensor = self.down(silu(self.gate(x_BTC)) * self.up(x_BTC))
        return output_BTC


class Block(nn.Module):
    """A pre-norm transformer block: attention, then an MLP, each added to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.before, self.after = (nn.RMSNorm(sizes.width, eps=EPSILON) for _ in range(2))
        self.attention, self.mlp = Attention(sizes), Mlp(sizes.width)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTC = x_BTC + self.dropout(self.attention(self.before(x_BTC)))
        output_BTC: Tensor = x_BTC + self.dropout(self.mlp(self.after(x_BTC)))
        return output_BTC


class Gpt(nn.Sequential):
    """A language model from tokens (B, T) to the logits of the next tokens (B, T, V).

    As a plain nn.Sequential of layers with one input and one output tensor, its layers can be
    recomputed, sharded, or placed on other ranks of a pipeline.
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
    """Initialize weights as GPT-2 does: smaller in deep models for layers added to the residual."""
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            adds = name.endswith(("attention.output.weight", "mlp.down.weight"))
            deep = math.sqrt(2 * model.sizes.layers) if adds else 1.0
            nn.init.normal_(weight, std=DEVIATION / deep)


def plan(model: Gpt) -> Mapping[str, How]:
    """Return how ranks of a tensor group split the model: by heads, and by channels inside MLPs."""
    colwise = ("attention.query", "attention.key", "attention.value", "mlp.gate", "mlp.up")
    rowwise = ("attention.output", "mlp.down")
    splits: dict[str, How] = {}
    for number in range(model.sizes.layers):
        splits |= {f"block{number}.{name}": "colwise" for name in colwise}
        splits |= {f"block{number}.{name}": "rowwise" for name in rowwise}
    return splits


def turns(length: int, channels: int) -> Tensor:
    """Return cosines and sines of the positions' angles (2, T, D/2). Source: Su et al., eq. 15."""
    powers = torch.arange(0, channels, 2, dtype=torch.float64) / channels
    angles = torch.arange(length, dtype=torch.float64)[:, None] * BASE**-powers
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x_BHTD: Tensor, turns_2TD: Tensor) -> Tensor:
    """Turn pairs of channels by the angles of their positions. Source: Su et al., equation 34.

    Channels of the first half pair with those of the second: the order of a head's channels is
    arbitrary, and slicing halves is faster than slicing every second channel.
    """
    cosines, sines = turns_2TD.to(x_BHTD.dtype)
    first, second = x_BHTD.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
