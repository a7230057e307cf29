"""If these fail, networks of timm are built wrongly, or people are not told how to get it."""

import importlib
import sys

import pytest
import torch

from trainables import Training, Worker

MODULE = "train_timm"


def test_who_does_not_have_timm_is_told_how_to_get_it(monkeypatch):
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError, match=r"timm.*: .* pip install 'hposvc\[timm\]'"):
        importlib.import_module(MODULE)


@pytest.fixture
def kind():
    """Return the task class; skip the test where timm is not installed."""
    pytest.importorskip("timm")
    return importlib.import_module(MODULE).TimmImages


def test_digits_are_learned(kind):
    worker = Worker.alone(until=2, training=Training(schedule="cosine", warmup=0.1))
    kind(model="test_resnet", side=16, lr=3e-3, batch=64).train(worker)
    assert worker.reports[-1].metrics["val/accuracy"] > 0.5


def test_a_head_is_trained_alone(kind):
    module = sys.modules[kind.__module__]
    model = module.with_head_alone(kind(model="test_resnet").build_model())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(torch.rand(4, 1, 32, 32)).sum().backward()
    learning = {name for name, tensor in model.named_parameters() if tensor.grad is not None}
    assert learning == {"fc.weight", "fc.bias"}
    changed = {
        name for name, tensor in model.state_dict().items() if not tensor.equal(before[name])
    }
    assert all(name.endswith("num_batches_tracked") for name in changed)
