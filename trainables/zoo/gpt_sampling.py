"""What a Gpt writes: one token after the other, drawn from what it expects next.

Sources: top-k, Fan et al., Hierarchical Neural Story Generation (2018), section 5.4; top-p,
Holtzman et al., The Curious Case of Neural Text Degeneration (2020), section 3.1.

Axes: B texts, T tokens, V words of the vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.zoo.gpt import Attention, Cache, Gpt


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens; what is cut is cut by both rules."""

    seed: int = 0  # equal seeds draw equal texts
    temperature: float = 1.0  # below 1: likely tokens become more likely; 0: always the likeliest
    top_k: int | None = None  # of so many likeliest tokens; None: of all
    top_p: float = 1.0  # of the fewest likeliest tokens that together are so probable

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; give 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; give 1 or more, or leave it out")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; give more than 0, at most 1")


@torch.no_grad()
def generate(model: Gpt, prompt_BT: Tensor, count: int, sampling: Sampling) -> Tensor:
    """Prompts and `count` tokens that follow them.

    Where a text grows longer than the model looks back, it goes on from the text's end, half as
    long. Ranks that share a model must all call it.

    Args:
        prompt_BT: equally long ones, of one token or more.
    """
    if prompt_BT.ndim != 2 or not prompt_BT.shape[1]:
        raise ValueError(
            f"prompt has shape {tuple(prompt_BT.shape)}; give (texts, 1 token or more)"
        )
    length, generator = model.sizes.length, torch.Generator().manual_seed(sampling.seed)
    tokens_BT = prompt_BT.cpu()
    fresh_BT = tokens_BT[:, -length:]
    with remembering(model) as attentions:
        device = attentions[0].turns.device  # weights may be elsewhere
        for _ in range(count):
            if len(attentions[0].cache or ()) == length:
                forget(attentions)
                fresh_BT = tokens_BT[:, -(length // 2) :]
            logits_BV = model(fresh_BT.to(device))[:, -1]
            fresh_BT = draw(logits_BV.double().cpu(), sampling, generator)
            tokens_BT = torch.cat([tokens_BT, fresh_BT], dim=1)
    return tokens_BT


@contextmanager
def remembering(model: Gpt) -> Iterator[list[Attention]]:
    """Within it, the model computes without dropout, and what it is given goes on from before."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    was_training = model.training
    model.eval()
    forget(attentions)
    try:
        yield attentions
    finally:
        for attention in attentions:
            attention.cache = None
        model.train(was_training)


def forget(attentions: Sequence[Attention]) -> None:
    """Begin anew."""
    for attention in attentions:
        attention.cache = Cache()


def draw(logits_BV: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """A token for each text, (B, 1)."""
    if sampling.temperature == 0:
        return logits_BV.argmax(dim=-1, keepdim=True)
    return torch.multinomial(chances(logits_BV, sampling), 1, generator=generator)


def chances(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """The probability of each token, those that are cut at 0; the temperature is above 0."""
    sorted_BV, order_BV = (logits_BV / sampling.temperature).sort(dim=-1, descending=True)
    if sampling.top_k is not None:
        sorted_BV[:, sampling.top_k :] = -math.inf
    found_BV = sorted_BV.softmax(dim=-1)
    # The likeliest always stays: nothing is before it.
    before_BV = found_BV.cumsum(dim=-1) - found_BV
    kept_BV = found_BV.where(before_BV < sampling.top_p, 0.0)
    kept_BV = kept_BV / kept_BV.sum(dim=-1, keepdim=True)
    return torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)
