"""If these fail, pretrained language models are fine-tuned wrongly, or their adapters are lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tasks import curve
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from train_llm import CausalLM, pretrained
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trainables import Saved, Training, Worker
from trainables.checkpoints.loading import load_weights
from trainables.checkpoints.storing import read
from trainables.lora import merge
from trainables.worker import LocalLink

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 6
SMALL = {"batch": 8, "length": 16, "validation": 0.2, "lr": 0.01, "written": 4, "prompt": "To"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Create a folder with a model of two layers, its tokenizer, and a text."""
    folder = tmp_path_factory.mktemp("home")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=pieces).save_pretrained(folder / "model")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None}
    config = LlamaConfig(vocab_size=256, eos_token_id=None, **sizes, **heads)
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    (folder / "text.txt").write_text(TEXT)
    return folder


def task_of(home: Path, **options: Any) -> CausalLM:
    return CausalLM(model=str(home / "model"), text=str(home / "text.txt"), **{**SMALL, **options})


@pytest.mark.parametrize("rank", [4, 0])
def test_a_model_learns_a_text_by_lora_and_as_a_whole(home, tmp_path, rank):
    task = task_of(home, lora_rank=rank)
    worker = Worker.alone(until=4, folder=tmp_path)
    task.train(worker)
    losses = [report.metrics["val/loss"] for report in worker.reports]
    assert losses[-1] < losses[0] < 5.6  # a guess among 256 costs 5.55 nats
    held = read(Path(worker.reports[-1].checkpoint.path)).tensors
    names = {name for name in held if name.startswith("model.")}
    assert all(".lora_" in name for name in names) == bool(rank)
    assert len(names) == (8 if rank else 21)


def trained(rank: int, home: Path, folder: Path, name: str) -> list[dict[str, float]]:
    """Train two epochs in one order, and in two."""
    options = Training(name, precision="64-true", activation_checkpointing=1, accumulate=2)
    lone_worker = Worker.alone(until=1, folder=folder / name, training=options)
    worker = replace(lone_worker, rank=rank, world_size=2, total=2)
    uninterrupted = replace(worker, until=2, trial="whole", link=LocalLink())
    task = task_of(home)
    task.train(uninterrupted)
    task.train(worker)
    box = [vars(worker.reports[-1].checkpoint) if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    task.train(replace(worker, order=2, first=2, until=2, start=Saved(**box[0])))
    assert curve(worker) == curve(uninterrupted)
    return curve(uninterrupted)


@pytest.mark.full
def test_ranks_go_on_bit_by_bit_and_one_process_writes_what_they_learned(
    home, tmp_path, on_two_ranks
):
    reports, _ = on_two_ranks(trained, home, tmp_path, "fsdp")
    alone = Worker.alone(until=2, training=Training(precision="64-true"))
    task_of(home, lora_dropout=0.0).train(alone)
    assert reports[-1]["val/loss"] == pytest.approx(curve(alone)[-1]["val/loss"], rel=0.05)
    task = task_of(home)
    model = load_weights(task.build_model().double(), tmp_path / "fsdp" / "alone" / "2-2")
    written = task.write(model, "To be")
    assert written.startswith("To be")
    assert len(written) > len("To be")
    merge(model)
    assert task.write(model, "To be") == written


def losses(reports: list[dict[str, float]]) -> list[float]:
    return [report[kind] for report in reports for kind in ("train/loss", "val/loss")]


def test_another_base_is_refused(home, tmp_path):
    task, worker = task_of(home), Worker.alone(folder=tmp_path)
    task.train(worker)
    model = pretrained(str(home / "model"))
    model.get_submodule("model.layers.0.mlp.up_proj").weight.data[0] += 1
    model.save_pretrained(tmp_path / "other")
    other = replace(task, model=str(tmp_path / "other")).build_model()
    with pytest.raises(ValueError, match="rests on frozen weights of fingerprint"):
        load_weights(other, Path(worker.reports[-1].checkpoint.path))


def test_rotary_frequencies_stay_exact_in_coarse_formats(home):
    model = pretrained(str(home / "model"))
    frequencies = model.get_submodule("model.rotary_emb").inv_freq.clone()
    model.to(torch.bfloat16)
    assert torch.equal(model.get_submodule("model.rotary_emb").inv_freq, frequencies)
    assert all(weight.dtype == torch.bfloat16 for weight in model.parameters())
