"""If these fail, LoRA computes something different from its paper, or merges it wrongly.

Axes: B samples, F features.
"""

import copy

import pytest
import torch
from adaptable import AT, OPTIONS, Net, tuned
from peft import LoraConfig, get_peft_model
from torch import nn

from trainables.lora import LoraOptions, adapt, adapters, merge, merged_weights, unmerge
from trainables.pretrained import frozen_base_names


@pytest.fixture(autouse=True)
def exact():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("stabilized", "scaling"), [(False, 2.0), (True, 6 / 3**0.5)])
def test_a_layer_computes_what_the_paper_says(stabilized, scaling):
    base = nn.Sequential(nn.Linear(6, 8))
    options = LoraOptions(3, 6.0, targets=("0",), stabilized=stabilized)
    layer = tuned(copy.deepcopy(base), options)[0]
    x_BF = torch.randn(5, 6)
    weight = base[0].weight + scaling * layer.lora_B @ layer.lora_A
    torch.testing.assert_close(layer(x_BF), x_BF @ weight.T + base[0].bias, rtol=0, atol=1e-13)


def test_what_is_trained_are_adapters_and_the_new_head():
    model = adapt(Net(), OPTIONS)
    layers = ("words", "block.query", "block.value")
    trained = {f"{name}.{part}" for name in layers for part in ("lora_A", "lora_B")}
    trained |= {"head.weight", "head.bias"}
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == trained
    assert frozen_base_names(model) == set(model.state_dict()) - trained
    assert frozen_base_names(model) | {"head.weight", "head.bias"} == set(Net().state_dict())


@pytest.mark.parametrize("tied", [False, True])
def test_a_merged_model_computes_the_same_and_unmerging_gives_every_bit_back(tied):
    options = LoraOptions(rank=3, alpha=6.0, targets=("*.query", "*.value", "words"))
    model = tuned(Net(tied), options)
    before, expected = copy.deepcopy(model.state_dict()), model(AT)
    assert (expected - Net()(AT)).abs().max() > 0.1
    merge(model)
    merge(model)  # is merged already
    torch.testing.assert_close(model(AT), expected, rtol=0, atol=1e-12)
    assert not torch.equal(model.words.weight, before["words.weight"])
    unmerge(model)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not tied or model.head.weight is model.words.weight


def test_merged_weights_are_those_of_a_model_without_adapters():
    model = tuned(Net())
    plain = Net()
    plain.load_state_dict(merged_weights(model))
    torch.testing.assert_close(plain(AT), model(AT), rtol=0, atol=1e-12)
    assert not any(layer.replaced for layer in adapters(model).values())


def test_the_losses_are_those_of_peft():
    base = Net()
    ours = adapt(copy.deepcopy(base), OPTIONS)
    targets, modules = ["query", "value", "words"], ["head"]
    theirs = get_peft_model(
        base, LoraConfig(r=3, lora_alpha=6, target_modules=targets, modules_to_save=modules)
    )
    for name, layer in adapters(ours).items():
        other = theirs.base_model.model.get_submodule(name)
        embeds = isinstance(layer, nn.Embedding)
        a = other.lora_embedding_A.default if embeds else other.lora_A.default.weight
        b = other.lora_embedding_B.default if embeds else other.lora_B.default.weight
        layer.lora_A.data.copy_(a)
        layer.lora_B.data.copy_(b)
    curves = [losses_of(model, steps=20) for model in (ours, theirs)]
    assert curves[0] == pytest.approx(curves[1], abs=1e-13)
    assert curves[0][-1] < curves[0][0] / 2


def losses_of(model: nn.Module, steps: int) -> list[float]:
    """Return the losses of learning to repeat each input word."""
    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad], 0.03
    )
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(AT).flatten(0, 1), AT.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_layer_with_two_names_gets_one_adapter():
    shared = nn.Linear(6, 6)
    model = adapt(nn.Sequential(shared, nn.Tanh(), shared), LoraOptions(targets=("[02]",)))
    assert model[0] is model[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoraOptions(targets=("*.qeury",)), r"'\*.qeury' fits none; there are block.query"),
        (LoraOptions(targets=("norm",)), r"'norm' fits only norm \(LayerNorm\), which cannot"),
        (LoraOptions(targets=("words",), whole=("haed",)), r"whole: 'haed' fits none; .* head"),
    ],
)
def test_a_pattern_that_fits_nothing_is_named_with_what_is_near(options, message):
    with pytest.raises(ValueError, match=message):
        adapt(Net(), options)


def test_layers_that_others_read_without_calling_them_are_refused():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2))
    for name in ("0.linear1", "0.self_attn.out_proj"):
        with pytest.raises(ValueError, match="which cannot be adapted"):
            adapt(model, LoraOptions(targets=(name,)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank": 0}, "rank is 0; give 1 or more"),
        ({"alpha": 0.0}, "alpha is 0.0; give a number above 0"),
        ({"dropout": 1.0}, "dropout is 1.0; give 0 or more, below 1"),
        ({"targets": ()}, "targets is empty; name the layers to adapt"),
    ],
)
def test_options_out_of_their_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        LoraOptions(**wrong)
