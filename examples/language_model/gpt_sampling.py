"""Generation of text by a Gpt: tokens drawn one after the other from the predicted probabilities.

Sources: top-k, Fan et al., Hierarchical Neural Story Generation (2018), section 5.4; top-p,
Holtzman et al., The Curious Case of Neural Text Degeneration (2020), section 3.1.

Axes: B texts, T tokens, V words of the vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from gpt import Attention, Cache, Gpt
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """Options for drawing tokens; a token must pass both top_k and top_p."""

    seed: int = 0  # equal seeds draw equal texts
    temperature: float = 1.0  # below 1: likely tokens become more likely; 0: always the likeliest
    top_k: int | None = None  # draw from this many of the likeliest tokens; None: from all
    top_p: float = 1.0  # draw from the fewest likeliest tokens with this total probability

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; give 0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; give 1 or more, or leave it out")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; give more than 0, at most 1")


@torch.no_grad()
def generate(model: Gpt, prompt_BT: Tensor, count: int, sampling: Sampling) -> Tensor:
    """Return the prompts followed by `count` generated tokens each.

    When a text outgrows the model's context, generation continues from the text's last tokens, half
    a context long. Ranks sharing a model must all call this.

    Args:
        prompt_BT: prompts of equal length, 1 token or more.
    """
    if prompt_BT.ndim != 2 or not prompt_BT.shape[1]:
        raise ValueError(
            f"prompt has shape {tuple(prompt_BT.shape)}; give (texts, 1 token or more)"
        )
    length, generator = model.sizes.length, torch.Generator().manual_seed(sampling.seed)
    tokens_BT = prompt_BT.cpu()
    fresh_BT = tokens_BT[:, -length:]
    with caching(model) as attentions:
        device = attentions[0].turns.device  # weights may be offloaded
        for _ in range(count):
            if len(attentions[0].cache or ()) == length:
                reset_caches(attentions)
                fresh_BT = tokens_BT[:, -(length // 2) :]
            logits_BV = model(fresh_BT.to(device))[:, -1]
            fresh_BT = draw(logits_BV.double().cpu(), sampling, generator)
            tokens_BT = torch.cat([tokens_BT, fresh_BT], dim=1)
    return tokens_BT


@contextmanager
def caching(model: Gpt) -> Iterator[list[Attention]]:
    """Run the model without dropout and with caches: each input continues the previous one."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    was_training = model.training
    model.eval()
    reset_caches(attentions)
    try:
        yield attentions
    finally:
        for attention in attentions:
            attention.cache = None
        model.train(was_training)


def reset_caches(attentions: Sequence[Attention]) -> None:
    """Empty all caches."""
    for attention in attentions:
        attention.cache = Cache()


def draw(logits_BV: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Draw a token for each text, (B, 1)."""
    if sampling.temperature == 0:
        return logits_BV.argmax(dim=-1, keepdim=True)
    return torch.multinomial(token_probabilities(logits_BV, sampling), 1, generator=generator)


def token_probabilities(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Return the probability of each token, 0 if cut off; the temperature must be above 0."""
    sorted_BV, order_BV = (logits_BV / sampling.temperature).sort(dim=-1, descending=True)
    if sampling.top_k is not None:
        sorted_BV[:, sampling.top_k :] = -math.inf
    chance_BV = sorted_BV.softmax(dim=-1)
    # The likeliest token always stays: the sum before it is 0.
    before_BV = chance_BV.cumsum(dim=-1) - chance_BV
    nucleus_BV = chance_BV.where(before_BV < sampling.top_p, 0.0)
    nucleus_BV = nucleus_BV / nucleus_BV.sum(dim=-1, keepdim=True)
    return torch.zeros_like(nucleus_BV).scatter(-1, order_BV, nucleus_BV)
