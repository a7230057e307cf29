"""If these fail, adapters cannot be shared with users of peft, or mean something else there.

Axes: B samples, T tokens.
"""

import json
from dataclasses import replace

import pytest
import torch
from adaptable import AT, Net, tuned
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from trainables.lora import LoraOptions, adapters, merge
from trainables.lora.peft import CONFIG, load_peft, save_peft

OPTIONS = LoraOptions(rank=3, alpha=4.5, targets=("*.query", "*.value", "words"), whole=("head",))


def same_base() -> Net:
    torch.manual_seed(0)
    return Net()


def test_what_is_saved_comes_back(tmp_path):
    model = tuned(same_base(), OPTIONS)
    again = load_peft(same_base(), save_peft(model, tmp_path / "adapter"))
    assert torch.equal(again(AT), model(AT))
    assert {name: weight.requires_grad for name, weight in again.named_parameters()} == {
        name: weight.requires_grad for name, weight in model.named_parameters()
    }


def test_dropout_is_saved_though_the_first_adapted_layer_is_an_embedding(tmp_path):
    model = tuned(same_base(), replace(OPTIONS, dropout=0.3))
    assert isinstance(next(iter(adapters(model).values())), nn.Embedding)
    folder = save_peft(model, tmp_path)
    assert json.loads((folder / CONFIG).read_text())["lora_dropout"] == 0.3
    assert load_peft(same_base(), folder).block.query.dropout.p == 0.3


def test_peft_loads_what_we_save(tmp_path):
    model = tuned(same_base(), OPTIONS)
    theirs = PeftModel.from_pretrained(same_base(), save_peft(model, tmp_path / "adapter"))
    torch.testing.assert_close(theirs(AT), model(AT), rtol=0, atol=1e-5)


@pytest.mark.parametrize("stabilized", [False, True])
def test_we_load_what_peft_saves(tmp_path, stabilized):
    names = {"target_modules": ["query", "value", "words"], "modules_to_save": ["head"]}
    config = LoraConfig(r=3, lora_alpha=5, use_rslora=stabilized, **names)
    theirs = get_peft_model(same_base(), config)
    for name, weight in theirs.named_parameters():
        if weight.requires_grad:
            nn.init.normal_(weight, std=0.3)
            assert "lora" in name or "head" in name
    theirs.save_pretrained(tmp_path)
    ours = load_peft(same_base(), tmp_path)
    assert set(adapters(ours)) == {"block.query", "block.value", "words"}
    torch.testing.assert_close(ours(AT), theirs(AT), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "asks for use_dora: True; adapters here are plain"),
        ({"rank_pattern": {"query": 4}}, "asks for rank_pattern"),
        ({"bias": "all"}, "asks for bias: all"),
        ({"init_lora_weights": "pissa"}, "asks for init_lora_weights: pissa"),
        ({"peft_type": "IA3"}, "peft_type is IA3, not LORA"),
        ({"r": 2}, r"block.query.lora_A is \(3, 6\) in it, \(2, 6\) here"),
    ],
)
def test_what_an_adapter_here_cannot_do_is_refused(tmp_path, change, message):
    save_peft(tuned(same_base(), OPTIONS), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        load_peft(same_base(), tmp_path)


def test_there_must_be_adapters_to_save(tmp_path):
    with pytest.raises(ValueError, match="Net has no adapters"):
        save_peft(same_base(), tmp_path)
    merge(model := tuned(same_base(), OPTIONS))
    with pytest.raises(ValueError, match="Net has merged adapters"):
        save_peft(model, tmp_path)
