"""If these fail, fronts of accuracy against cost are those of other costs.

Axes: B samples, C channels, T tokens.
"""

import pytest
import torch
from torch import Tensor, nn

from trainables import costs


class Tied(nn.Module):
    """A model sharing its weights between embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.head(self.embedding(tokens_BT))


class Pair(nn.Module):
    """A model of two inputs that records the number of samples of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(6, 2), []

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        self.seen.append((len(left), torch.is_grad_enabled()))
        return self.layer(torch.cat([left, right], dim=1))


@pytest.mark.parametrize(
    ("model", "number"),
    [(nn.Linear(7, 5), 7 * 5 + 5), (nn.Conv2d(3, 8, 5), 8 * 3 * 25 + 8), (Tied(), 44)],
)
def test_parameters_count_each_weight_once(model, number):
    assert costs.parameters(model) == number


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize(
    ("model", "shape", "number"),
    [
        (nn.Linear(7, 5), (7,), 2 * 7 * 5),
        (nn.Linear(7, 5), (9, 7), 9 * 2 * 7 * 5),
        (nn.Conv2d(3, 8, 5, padding=2), (3, 12, 10), 2 * 3 * 8 * 25 * 12 * 10),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)), (4,), 2 * 16),
    ],
)
def test_flops_are_those_of_one_sample(model, shape, number, samples):
    assert costs.flops(model, torch.randn(samples, *shape)) == number


def test_latency_times_one_sample_without_gradients_after_the_warm_up():
    model = Pair()
    inputs = (torch.randn(3, 2), torch.randn(3, 4))
    assert costs.latency_ms(model, inputs, repeats=4, warm_up=2) > 0
    assert model.seen == [(1, False)] * 6


def test_latency_is_the_median_of_the_passes_in_milliseconds(monkeypatch):
    clock = iter([0, 0.002, 1, 1.004, 2, 2.9])  # passes of 2, 4 and 900 ms
    monkeypatch.setattr("trainables.costs.time.perf_counter", lambda: next(clock))
    assert costs.latency_ms(nn.Identity(), torch.zeros(1), repeats=3) == pytest.approx(4)


@pytest.mark.parametrize("inputs", [(), torch.zeros(0, 3)])
def test_no_sample_is_refused(inputs):
    with pytest.raises(ValueError, match="there is no sample"):
        costs.flops(nn.Identity(), inputs)
