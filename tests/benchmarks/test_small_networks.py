"""The perceptrons of the race beside torch's."""

import numpy as np
import pytest
import small_networks
import torch
from curve_data import digits
from torch import nn
from torch.nn import functional

PARAMS = {
    "lr": 0.01,
    "optimizer": "adamw",
    "momentum": 0.0,
    "weight_decay": 0.02,
    "width": 12,
    "depth": 2,
    "dropout": 0.0,
    "batch": 32,
    "activation": "relu",
    "schedule": "constant",
    "smoothing": 0.1,
}


@pytest.fixture(scope="module")
def samples():
    return digits()


def twin(network):
    """The same network in torch."""
    layers = []
    for weight_IO, bias_O, _, _ in network.layers:
        linear = nn.Linear(*weight_IO.shape)
        linear.weight.data = torch.tensor(weight_IO.T.copy())
        linear.bias.data = torch.tensor(bias_O.copy())
        layers += [linear, nn.ReLU() if network.relu else nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def vector(modules, slopes=False):
    """The weights, or their gradients, in our order."""
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    parts = [part for layer in linear for part in (layer.weight, layer.bias)]
    values = [(part.grad if slopes else part.data).numpy() for part in parts]
    return np.concatenate([value.T.ravel() for value in values])


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_updates_are_those_of_torch(samples, relu, optimizer):
    network = small_networks.Network.of([64, 16, 12, 10], relu, np.random.default_rng(0))
    beside = twin(network)
    if optimizer == "sgd":
        update = small_networks.sgd(network, decay=0.02, momentum=0.9)
        theirs = torch.optim.SGD(beside.parameters(), 0.05, momentum=0.9, weight_decay=0.02)
    else:
        update = small_networks.adamw(network, decay=0.02)
        theirs = torch.optim.AdamW(beside.parameters(), 0.05, weight_decay=0.02)
    target_CC = (0.9 * np.eye(10) + 0.01).astype(np.float32)
    for start in range(0, 320, 32):
        x, y = samples.train_x[start : start + 32], samples.train_y[start : start + 32]
        network.differentiate(x, target_CC[y], 0.0, np.random.default_rng(0))
        theirs.zero_grad()
        loss = functional.cross_entropy(
            beside(torch.tensor(x)), torch.tensor(y), label_smoothing=0.1
        )
        loss.backward()
        if not start:
            np.testing.assert_allclose(network.slope_W, vector(beside, slopes=True), atol=1e-6)
        update(0.05)
        theirs.step()
    np.testing.assert_allclose(network.weight_W, vector(beside), atol=1e-3)
    with torch.no_grad():
        logits = beside(torch.tensor(samples.test_x))
        loss = functional.cross_entropy(logits, torch.tensor(samples.test_y))
    assert small_networks.validated(network, samples)["loss"] == pytest.approx(
        float(loss), rel=1e-3
    )


def test_a_network_learns_and_a_wild_one_diverges(samples):
    *_, last = small_networks.trained(PARAMS, samples, seed=0)
    assert last["error"] < 0.1
    assert last["loss"] < 0.6
    wild = {**PARAMS, "optimizer": "sgd", "momentum": 0.99, "lr": 1.0, "weight_decay": 1.0}
    *_, last = small_networks.trained(wild, samples, seed=0)
    assert np.isnan(last["loss"]) or last["loss"] > 1.0
