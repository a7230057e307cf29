"""Texts that a language model writes."""

import pytest
import torch
from gpt import Gpt, Sizes
from gpt_sampling import Sampling, caching, generate, token_probabilities
from torch import Tensor

SIZES = Sizes(vocabulary=11, length=12, layers=2, width=16, heads=2)
GREEDY = Sampling(temperature=0)


def model_of(sizes: Sizes = SIZES) -> Gpt:
    torch.manual_seed(0)
    model = Gpt(sizes).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(20 if weight.ndim > 1 else 1)  # as if trained: it has opinions
    return model


def tokens(texts: int, length: int) -> Tensor:
    return torch.randint(11, (texts, length), generator=torch.Generator().manual_seed(1))


def test_tokens_one_at_a_time_give_what_all_at_once_give():
    model, x_BT = model_of(), tokens(2, 12)
    with caching(model):
        logits = [model(x_BT[:, :5]), *(model(x_BT[:, at : at + 1]) for at in range(5, 12))]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(x_BT))


def slowly(model: Gpt, prompt_BT: Tensor, count: int) -> Tensor:
    """Return the likeliest tokens, each by a full pass over the model's context."""
    text_BT, begin = prompt_BT, max(0, prompt_BT.shape[1] - 12)
    for number in range(count):
        if number and text_BT.shape[1] - begin == 13:
            begin = text_BT.shape[1] - 6
        following = model(text_BT[:, begin:])[:, -1].argmax(dim=-1, keepdim=True)
        text_BT = torch.cat([text_BT, following], dim=1)
    return text_BT


@pytest.mark.parametrize("prompt", [1, 5, 12, 20])
def test_the_cache_changes_nothing_that_is_written(prompt):
    model, start = model_of().eval(), tokens(3, prompt)
    texts = generate(model, start, 30, GREEDY)
    assert texts.shape == (3, prompt + 30)
    assert torch.equal(texts, slowly(model, start, 30))
    assert len(texts[0, prompt:].unique()) > 2


def test_unlikely_tokens_are_cut():
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]]).log()
    cut = token_probabilities(logits, Sampling(top_k=2))[0]
    torch.testing.assert_close(cut, torch.tensor([0, 2 / 3, 0, 1 / 3]))
    for top_p, kept in ((0.49, 1), (0.7, 2), (0.8, 3), (0.95, 4), (1.0, 4), (1e-9, 1)):
        cut = token_probabilities(logits, Sampling(top_p=top_p))
        assert ((cut > 0).sum(dim=-1) >= torch.tensor([kept, 1])).all(), top_p
        assert (cut[0] > 0).sum() == kept
        torch.testing.assert_close(cut.sum(dim=-1), torch.ones(2))
    sharp = token_probabilities(logits, Sampling(temperature=0.5))[0]
    torch.testing.assert_close(sharp, torch.tensor([0.01, 0.25, 0.0225, 0.0625]) / 0.345)
    torch.testing.assert_close(token_probabilities(logits, Sampling()), logits.exp())
