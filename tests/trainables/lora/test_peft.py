"""If these fail, adapters cannot be shared with users of peft, or mean something else there.

Axes: B samples, T tokens.
"""

import json
from dataclasses import replace

import torch
from adaptable import AT, Net, tuned
from peft import PeftModel
from torch import nn

from trainables.lora import LoraOptions, adapters
from trainables.lora.peft import CONFIG, save_peft

OPTIONS = LoraOptions(rank=3, alpha=4.5, targets=("*.query", "*.value", "words"), whole=("head",))


def same_base() -> Net:
    torch.manual_seed(0)
    return Net()


def test_dropout_is_saved_though_the_first_adapted_layer_is_an_embedding(tmp_path):
    model = tuned(same_base(), replace(OPTIONS, dropout=0.3))
    assert isinstance(next(iter(adapters(model).values())), nn.Embedding)
    folder = save_peft(model, tmp_path)
    assert json.loads((folder / CONFIG).read_text())["lora_dropout"] == 0.3


def test_peft_loads_what_we_save(tmp_path):
    model = tuned(same_base(), OPTIONS)
    theirs = PeftModel.from_pretrained(same_base(), save_peft(model, tmp_path / "adapter"))
    torch.testing.assert_close(theirs(AT), model(AT), rtol=0, atol=1e-5)
