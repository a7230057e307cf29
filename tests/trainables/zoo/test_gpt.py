"""If this fails, language models train on another architecture than the page says, or write wrong.

Axes: B texts, T tokens, V words of the vocabulary.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from trainables.zoo.gpt import Gpt, Sizes, rotate, turns
from trainables.zoo.gpt_sampling import Sampling, chances, generate, remembering

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


def test_no_token_sees_what_comes_after_it():
    model, x_BT = model_of(), tokens(3, 12)
    for cut in range(1, 12):
        torch.testing.assert_close(model(x_BT[:, :cut]), model(x_BT)[:, :cut])
    changed = x_BT.clone()
    changed[:, 0] = (x_BT[:, 0] + 1) % 11
    assert (model(changed)[:, -1] != model(x_BT)[:, -1]).any()  # but it sees what came before


def test_rotated_products_depend_on_the_distance_alone():
    angles = turns(12, 8).double()
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def product(at: int, other: int) -> Tensor:
        one, two = (rotate(x, angles[:, p : p + 1]) for x, p in ((query, at), (key, other)))
        return (one * two).sum()

    torch.testing.assert_close(product(7, 3), product(9, 5), atol=1e-6, rtol=0)
    assert abs(product(7, 3) - product(7, 4)) > 1e-3
    torch.testing.assert_close(rotate(query, angles[:, :1]), query)
    norms = rotate(query.expand(1, 1, 12, 8), angles).norm(dim=-1)
    torch.testing.assert_close(norms, query.norm().expand(1, 1, 12), atol=1e-6, rtol=0)


def test_a_pair_turns_by_its_position_times_its_frequency():
    x = torch.zeros(1, 1, 5, 8)
    x[..., 1] = 1.0
    turned = rotate(x, turns(5, 8))
    angle = torch.tensor(4 * 10_000 ** (-2 / 8))
    torch.testing.assert_close(turned[0, 0, 4, [1, 5]], torch.stack([angle.cos(), angle.sin()]))


def test_new_weights_are_small_and_smaller_where_blocks_add_up():
    torch.manual_seed(0)
    model = Gpt(replace(SIZES, vocabulary=500, width=64, layers=8, tie=False))
    weights = dict(model.named_parameters())
    assert weights["block3.attention.query.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    for name in ("block3.attention.output.weight", "block3.mlp.down.weight"):
        assert weights[name].std().item() == pytest.approx(0.02 / 4, rel=0.05)
    loss = torch.nn.functional.cross_entropy(
        model(tokens(8, 12)).flatten(0, 1), torch.zeros(96).long()
    )
    assert loss.item() == pytest.approx(torch.tensor(500.0).log().item(), abs=0.1)


def test_tied_weights_are_one():
    tied, apart = Gpt(SIZES), Gpt(replace(SIZES, tie=False))
    assert tied.head.output.weight is tied.embedding.weight
    sizes = [sum(each.numel() for each in model.parameters()) for model in (tied, apart)]
    assert sizes[1] - sizes[0] == 11 * 16


def test_tokens_one_at_a_time_give_what_all_at_once_give():
    model, x_BT = model_of(), tokens(2, 12)
    with remembering(model):
        found = [model(x_BT[:, :5]), *(model(x_BT[:, at : at + 1]) for at in range(5, 12))]
    torch.testing.assert_close(torch.cat(found, dim=1), model(x_BT))


def slowly(model: Gpt, prompt_BT: Tensor, count: int) -> Tensor:
    """The likeliest tokens, each by a pass over all that the model then looks back on."""
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
    found = generate(model, start, 30, GREEDY)
    assert found.shape == (3, prompt + 30)
    assert torch.equal(found, slowly(model, start, 30))
    assert len(found[0, prompt:].unique()) > 2


def test_equal_seeds_write_equal_texts_and_other_seeds_others():
    model, start = model_of(replace(SIZES, dropout=0.5)), tokens(4, 2)
    before = torch.get_rng_state()
    texts = [generate(model, start, 20, Sampling(seed, 2.0)) for seed in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_unlikely_tokens_are_cut():
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]]).log()
    cut = chances(logits, Sampling(top_k=2))[0]
    torch.testing.assert_close(cut, torch.tensor([0, 2 / 3, 0, 1 / 3]))
    for top_p, kept in ((0.49, 1), (0.7, 2), (0.8, 3), (0.95, 4), (1.0, 4), (1e-9, 1)):
        cut = chances(logits, Sampling(top_p=top_p))
        assert ((cut > 0).sum(dim=-1) >= torch.tensor([kept, 1])).all(), top_p
        assert (cut[0] > 0).sum() == kept
        torch.testing.assert_close(cut.sum(dim=-1), torch.ones(2))
    sharp = chances(logits, Sampling(temperature=0.5))[0]
    torch.testing.assert_close(sharp, torch.tensor([0.01, 0.25, 0.0225, 0.0625]) / 0.345)
    torch.testing.assert_close(chances(logits, Sampling()), logits.exp())


def test_one_token_to_choose_from_is_the_likeliest():
    model, start = model_of(), tokens(3, 4)
    greedy = generate(model, start, 10, GREEDY)
    for sampling in (Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(temperature=1e-4)):
        assert torch.equal(generate(model, start, 10, sampling), greedy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature is -1; give 0 or more"),
        ({"top_k": 0}, "top_k is 0; give 1 or more"),
        ({"top_p": 0.0}, "top_p is 0.0; give more than 0"),
    ],
)
def test_impossible_samplings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"width": 10, "heads": 2},
            "width is 10, heads is 2; give a width that is a multiple of 4",
        ),
        ({"layers": 0}, "layers is 0; give 1 or more"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        replace(SIZES, **options)


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="1 token or more"):
        generate(Gpt(SIZES), torch.zeros(1, 0).long(), 3, GREEDY)
