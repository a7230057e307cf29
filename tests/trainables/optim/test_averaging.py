"""If these fail, the averaged weights are wrong, or training goes on from them by mistake."""

import pytest
import torch
from torch import nn

from trainables.optim.averaging import Ema


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in model.parameters()]


def set_all(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(value)


def test_an_average_is_the_recursion_of_its_definition():
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    set_all(model, 0.0)
    ema, expected = Ema(model, 0.6), 0.0
    for count in range(20):
        set_all(model, float(count))
        ema.update()
        decay = min(0.6, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * count
    with ema.applied():
        assert model.weight.item() == pytest.approx(expected, rel=1e-14)


def test_a_model_that_does_not_change_is_its_average():
    model = nn.Linear(3, 2)
    ema = Ema(model, 0.99)
    for _ in range(5):
        ema.update()
    with ema.applied():
        inside = weights(model)
    torch.testing.assert_close(inside, weights(model), rtol=0, atol=0)


def test_the_average_of_half_weights_keeps_what_half_would_round_away():
    model = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    set_all(model, 256.0)
    ema = Ema(model, 0.999)
    ema.updates = 10**6
    set_all(model, 258.0)  # the next bfloat16 after 256
    for _ in range(1000):
        ema.update()
    with ema.applied():
        assert model.weight.item() == 258.0
    assert ema.state_dict()["averages"]["weight"].item() == pytest.approx(
        258 - 2 * 0.999**1000, rel=1e-5
    )


def test_the_models_own_weights_come_back_also_after_an_error():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    ema = Ema(model, 0.5)
    set_all(model, 0.1)
    before = weights(model)
    with ema.applied():
        assert not torch.equal(model[0].weight, before[0])
    assert all(map(torch.equal, before, weights(model)))
    with pytest.raises(ValueError, match="more than 1 value"), ema.applied():
        model(torch.ones(1, 3))  # batch norm cannot train on one sample
    assert all(map(torch.equal, before, weights(model)))


def test_averages_are_taken_up_again_bit_by_bit():
    model = nn.Linear(3, 2)
    first = Ema(model, 0.9)
    for value in (1.0, 2.0):
        set_all(model, value)
        first.update()
    second = Ema(model, 0.9)
    second.load_state_dict(first.state_dict())
    set_all(model, 7.0)
    first.update()
    second.update()
    assert first.updates == second.updates
    for name, average in first.state_dict()["averages"].items():
        assert torch.equal(average, second.state_dict()["averages"][name])


def test_averages_of_another_model_are_refused_by_name():
    with pytest.raises(ValueError, match="only one of the two has bias;"):
        Ema(nn.Linear(3, 2), 0.9).load_state_dict(
            Ema(nn.Linear(3, 2, bias=False), 0.9).state_dict()
        )


def test_frozen_weights_have_no_average_and_buffers_stay_the_models():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].requires_grad_(False)
    ema = Ema(model, 0.9)
    assert ema.state_dict()["averages"].keys() == {"1.weight", "1.bias"}
    with ema.applied():
        model[1].running_mean.fill_(3.0)
    assert model[1].running_mean.tolist() == [3.0, 3.0]
