"""If this fails, language models train on another architecture than the page says, or write wrong.

Axes: B texts, T tokens, V words of the vocabulary.
"""

import torch
from gpt import Gpt, Sizes, rotate, turns
from torch import Tensor

SIZES = Sizes(vocabulary=11, length=12, layers=2, width=16, heads=2)


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
        first, second = (rotate(x, angles[:, p : p + 1]) for x, p in ((query, at), (key, other)))
        return (first * second).sum()

    torch.testing.assert_close(product(7, 3), product(9, 5), atol=1e-6, rtol=0)
    assert abs(product(7, 3) - product(7, 4)) > 1e-3
    torch.testing.assert_close(rotate(query, angles[:, :1]), query)
    norms = rotate(query.expand(1, 1, 12, 8), angles).norm(dim=-1)
    torch.testing.assert_close(norms, query.norm().expand(1, 1, 12), atol=1e-6, rtol=0)
