"""If these fail, adapters cannot be shared with users of peft, or mean something else there.

Axes: B samples, T tokens.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from adaptable import AT, Net, tuned
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from trainables import Data, Task, Tensors, Worker
from trainables.checkpoints.storing import read
from trainables.data import Batch
from trainables.lora import LoraOptions, adapters
from trainables.lora.peft import CONFIG, save_peft
from trainables.pretrained import mark_frozen_base
from trainables.worker import LocalLink

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


@dataclass(frozen=True)
class TheirAdapters(Task):
    """A random Llama in bfloat16 with adapters of peft; text of one sentence."""

    lr: float = 0.01
    batch: int = 4
    dora: bool = False

    def build_model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)  # stands for pretrained weights
            base = LlamaForCausalLM(
                LlamaConfig(
                    vocab_size=256,
                    hidden_size=32,
                    intermediate_size=64,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                )
            ).bfloat16()
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], use_dora=self.dora)
        model = get_peft_model(base, config)
        mark_frozen_base(model)
        return model

    def load_data(self) -> Data:
        text = torch.tensor(list(b"the quick brown fox jumps over the lazy dog. " * 20))
        samples = Tensors(text.unfold(0, 17, 16))
        return Data(samples, samples)

    def compute_losses(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        logits = model(input_ids=batch[0][:, :-1], use_cache=False).logits.float()
        return cross_entropy(logits.flatten(0, 1), batch[0][:, 1:].flatten(), reduction="none")


@pytest.mark.parametrize("dora", [False, True])
def test_adapters_of_peft_train_over_a_base_in_16_bits_and_are_all_that_is_saved(tmp_path, dora):
    task = TheirAdapters(dora=dora)
    worker = replace(Worker.alone(until=2, folder=tmp_path), total=4)
    whole = replace(worker, until=4, trial="whole", link=LocalLink())
    task.train(whole)
    task.train(worker)
    start = worker.reports[-1].checkpoint
    names = {name for name in read(Path(start.path)).tensors if name.startswith("model.")}
    assert names
    assert all("lora_" in name for name in names)
    task.train(replace(worker, order=2, first=3, until=4, start=start))
    expected, found = ([r.metrics["val/loss"] for r in each.reports] for each in (whole, worker))
    assert found == expected
    assert expected[-1] < expected[0]
