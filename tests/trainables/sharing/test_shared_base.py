"""If these fail, a slot holds a base for each trial, or a trial changes that of its neighbours."""

import gc
import operator

import pytest
import torch
import tuned
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from torch import nn
from tuned import Base, Tuned

from trainables.lora import adapters, load_base
from trainables.lora import base as kept_base
from trainables.sharing.shared_base import SharedBase
from trainables.training_state.precision import convert


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """Bases are kept during a test, as in a slot whose trials share one."""
    monkeypatch.setattr(kept_base, "_BASE", kept_base._LoadedBase(shared=True))
    monkeypatch.setattr(tuned, "LOADS", [])


def places(model, frozen=True):
    return [each.data_ptr() for each in model.parameters() if each.requires_grad != frozen]


@pytest.mark.parametrize("own", [False, True])
def test_unlike_trials_hold_the_frozen_weights_once(own):
    base = SharedBase()
    models = [
        Tuned(rank=rank, targets=targets, own=own).build_model()
        for rank, targets in ((2, "query"), (5, "words value"), (1, "*"))
    ]
    for model in models:
        base.share(model)
    assert len({place for model in models for place in places(model)}) == len(places(Base(), False))
    trained = [place for model in models for place in places(model, frozen=False)]
    assert len(trained) == len({*trained}) == 2 * sum(len(adapters(model)) for model in models)
    assert len(tuned.LOADS) == (3 if own else 1)


def test_a_weight_that_is_trained_gets_memory_of_its_own():
    base = SharedBase()
    whole, other = Tuned(whole="head").build_model(), Tuned().build_model()
    for model in (whole, other):
        base.share(model)
    before = other.head.weight.clone()
    with torch.no_grad():
        whole.head.weight += 1
    assert torch.equal(other.head.weight, before)
    assert whole.query.weight.data_ptr() == other.query.weight.data_ptr()


def test_what_the_last_user_of_a_base_leaves_is_found_by_the_next():
    """The first model of a base may go before those that share its memory."""
    base = SharedBase()
    first, second, third = (Tuned(own=True).build_model() for _ in range(3))
    base.share(first)
    base.share(second)
    del first
    gc.collect()
    base.share(third)
    assert places(third) == places(second)


def test_another_base_takes_the_place_of_the_kept_one():
    models = [Tuned(width=width).build_model() for width in (8, 24, 24, 8)]
    assert tuned.LOADS == [8, 24, 8]
    assert [model.norm.weight.numel() for model in models] == [8, 24, 24, 8]


def test_buffers_and_modules_are_each_trial_s_own():
    one, other = Tuned().build_model(), Tuned().build_model()
    one.scale.fill_(2.0)
    one.norm.eps = 1.0
    assert other.scale[0] == 1
    assert other.norm.eps < 1


def test_loading_draws_no_numbers_of_the_trial():
    torch.manual_seed(7)
    expected = torch.rand(3)
    for _ in range(2):  # loaded, and kept
        torch.manual_seed(7)
        load_base(nn.Linear, 4, 4)
        assert torch.equal(torch.rand(3), expected)


def test_a_model_without_frozen_weights_is_refused():
    with pytest.raises(ValueError, match="Linear has no frozen weights to share; train adapters"):
        SharedBase().share(nn.Linear(2, 2))


def in_four_bits():
    """Return a base with a layer in 4 bits."""
    layer = Linear4bit(64, 64, quant_type="nf4")
    layer.load_state_dict(nn.Linear(64, 64).state_dict())
    model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), layer.to("cpu"), nn.Linear(64, 1))
    layer.support_avx512bf16_for_cpu = False
    return model


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_base_in_4_bits_is_held_once(precision):
    base, models = SharedBase(), []
    for rank in (2, 5):
        config = LoraConfig(r=rank, target_modules=["0", "2"], init_lora_weights=False)
        model = get_peft_model(load_base(in_four_bits), config)
        models.append(convert(model, torch.device("cpu"), precision))
        base.share(models[-1])
    packed = [model.base_model.model[2].base_layer.weight for model in models]
    assert packed[0].data_ptr() == packed[1].data_ptr()
    assert packed[0].dtype == torch.uint8
    x = torch.randn(4, 3)
    with kept_base.preserved():
        kept_base.seed_all(0)
        alone = get_peft_model(in_four_bits(), models[1].peft_config["default"])
    alone.load_state_dict(models[1].state_dict())
    assert torch.equal(models[1](x), alone(x))


def test_equal_samples_are_held_once():
    base = SharedBase()
    one, same, other = (Tuned().load_data().train.columns for _ in range(3))
    assert base.shared(one) == one
    assert all(map(operator.is_, base.shared(same), one))
    changed = (other[0] + 1, other[1])
    assert base.shared(changed)[0] is changed[0]
    assert base.shared(changed)[1] is one[1]
