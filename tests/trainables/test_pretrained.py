"""Frozen bases of models, told apart by their weights."""

import pytest
import torch
from adaptable import OPTIONS, Net
from safetensors.torch import save_file, save_model
from torch import nn

from trainables.lora import adapt
from trainables.pretrained import fingerprints, load_pretrained


@pytest.fixture(autouse=True)
def exact():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_the_fingerprint_is_of_the_frozen_weights_alone():
    torch.manual_seed(1)
    first, second = Net(), Net()
    second.load_state_dict(first.state_dict())
    nn.init.normal_(second.head.weight)
    assert fingerprints(adapt(first, OPTIONS)) == fingerprints(adapt(second, OPTIONS))
    assert len(fingerprints(first)) == 1
    assert fingerprints(first) != fingerprints(adapt(Net(), OPTIONS))


class Headed(nn.Module):
    """A body that files have, and a head and a scale that they lack."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.body(x)))


def test_mapped_weights_and_buffers_have_other_names_and_the_format_of_the_file(tmp_path):
    saved = Headed()
    saved.norm.running_mean.fill_(3.0)
    tensors = {f"net.{name}": value for name, value in saved.state_dict().items()}
    tensors["net.body.weight"] = saved.body.weight.detach().bfloat16()
    save_file(tensors, tmp_path / "all.safetensors")
    model = load_pretrained(Headed, tmp_path, lambda name: f"net.{name}")
    assert model.body.weight.dtype == torch.bfloat16
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, tensors[f"net.{name}"], rtol=0, atol=0)


def test_modules_that_files_lack_initialize_themselves_where_named(tmp_path):
    save_file(dict(Headed().body.state_dict(prefix="body.")), tmp_path / "some.safetensors")
    torch.manual_seed(7)
    model = load_pretrained(Headed, tmp_path / "some.safetensors", new=("head.*", "norm.*"))
    torch.manual_seed(7)
    head, norm = nn.Linear(4, 2), nn.BatchNorm1d(4)
    assert torch.equal(model.head.weight, head.weight)
    assert torch.equal(model.norm.weight, norm.weight)


@pytest.mark.parametrize(
    ("build", "new", "message"),
    [
        (Headed, ("norm.*",), "lacks head.weight, head.bias; if weights have other names"),
        (Headed, ("head.weight", "norm.*"), "lacks head.bias, head.weight"),
        (
            lambda: nn.ModuleDict({"trunk": nn.Linear(4, 4)}),
            (),
            r"lacks its body.bias, body.weight",
        ),
        (lambda: nn.ModuleDict({"body": nn.Linear(3, 5)}), (), r"body.weight is \(4, 3\) there"),
    ],
)
def test_weights_that_no_module_can_initialize_are_an_error(tmp_path, build, new, message):
    save_file(dict(Headed().body.state_dict(prefix="body.")), tmp_path / "some.safetensors")
    with pytest.raises(ValueError, match=message):
        load_pretrained(build, tmp_path, new=new)


def test_a_folder_without_weights_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no \*\.safetensors"):
        load_pretrained(Headed, tmp_path)


def test_a_mapped_base_has_the_fingerprint_of_a_copied_one(tmp_path):
    base = Net()
    save_model(base, str(tmp_path / "base.safetensors"))
    assert fingerprints(adapt(load_pretrained(Net, tmp_path), OPTIONS)) == fingerprints(
        adapt(base, OPTIONS)
    )
