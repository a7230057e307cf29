"""If these fail, the averaged weights are wrong, or training continues from them by mistake."""

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


def test_running_statistics_are_averaged_as_the_weights_are():
    model = nn.BatchNorm1d(2)
    ema = Ema(model, 0.5)
    ema.updates = 100
    for value in (4.0, 8.0):
        model.running_mean.fill_(value)
        ema.update()
    counted = model.num_batches_tracked.fill_(7)
    with ema.applied():
        assert model.running_mean.tolist() == [5.0, 5.0]
        assert counted == 7
    assert model.running_mean.tolist() == [8.0, 8.0]


def test_averages_change_places_with_weights_and_take_no_memory():
    model = nn.Linear(64, 64)
    ema = Ema(model, 0.5)
    set_all(model, 0.1)
    average = ema.state_dict()["averages"]["weight"]
    before, own = average.clone(), weights(model)
    with ema.applied():
        assert torch.equal(average, own[0])  # the memory of the averages holds the weights
        assert torch.equal(model.weight, before)
    assert torch.equal(average, before)
    assert all(map(torch.equal, own, weights(model)))


def test_frozen_weights_have_no_average_and_other_buffers_stay_the_models():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].requires_grad_(False)
    ema = Ema(model, 0.9)
    averaged = {"1.weight", "1.bias", "1.running_mean", "1.running_var"}
    assert ema.state_dict()["averages"].keys() == averaged
    with ema.applied():
        model[1].num_batches_tracked.fill_(3)
    assert model[1].num_batches_tracked == 3
