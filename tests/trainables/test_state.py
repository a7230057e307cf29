import pytest
import torch
from torch import nn

from trainables import precision
from trainables.state import load_training_state, save_training_state

SCALER = precision.scaler("16-mixed", torch.device("cpu"))


def trained(
    lr: float, kind=torch.optim.AdamW, **options
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = kind(model.parameters(), lr=lr, **options)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def fresh(lr: float, kind=torch.optim.AdamW, **options) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 1)
    return model, kind(model.parameters(), lr=lr, **options)


def test_weights_and_momenta_come_back_bit_by_bit(tmp_path):
    model, optimizer = trained(0.1)
    save_training_state(tmp_path, model, optimizer, SCALER)
    again, again_optimizer = fresh(0.1)
    load_training_state(tmp_path, again, again_optimizer, SCALER)
    assert torch.equal(again.weight, model.weight)
    state = again_optimizer.state_dict()["state"][0]
    assert torch.equal(state["exp_avg"], optimizer.state[model.weight]["exp_avg"])
    assert state["step"] == 3


def test_the_orders_values_win_over_the_restored_ones(tmp_path):
    save_training_state(tmp_path, *trained(0.1, weight_decay=0.5, betas=(0.8, 0.9)), SCALER)
    model, optimizer = fresh(0.003, weight_decay=0.01, betas=(0.9, 0.99))
    load_training_state(tmp_path, model, optimizer, SCALER)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.003, 0.01, (0.9, 0.99))


def test_the_scale_comes_back(tmp_path):
    scaler = precision.scaler("16-mixed", torch.device("cpu"))
    scaler.load_state_dict({**SCALER.state_dict(), "scale": 128.0})
    save_training_state(tmp_path, *trained(0.1), scaler)
    again = precision.scaler("16-mixed", torch.device("cpu"))
    load_training_state(tmp_path, *fresh(0.1), again)
    assert again.get_scale() == 128.0


def test_another_precision_may_go_on_from_a_checkpoint(tmp_path):
    save_training_state(tmp_path, *trained(0.1), precision.scaler("32-true", torch.device("cpu")))
    load_training_state(tmp_path, *fresh(0.1), SCALER)
    assert SCALER.get_scale() == 2.0**16


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    save_training_state(tmp_path, *trained(0.1), SCALER)
    with pytest.raises(ValueError, match="holds the state of AdamW, this order trains with SGD"):
        load_training_state(tmp_path, *fresh(0.1, torch.optim.SGD), SCALER)
