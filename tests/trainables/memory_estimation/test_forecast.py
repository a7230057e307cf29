"""Forecasts of memory. If they fail, people rent GPUs that are too small, or too large."""

from dataclasses import dataclass, replace

import psutil
import pytest
import torch
from forecasts import Wide, found
from gpt import Gpt, Sizes

from trainables import Data, Task, Tensors, Training
from trainables.lora import LoraOptions, adapt, adapters
from trainables.memory_estimation.forecast import variants
from trainables.memory_estimation.gpus import memory_of
from trainables.memory_estimation.meta_model import count_weights

MB = 10**6


@dataclass(frozen=True)
class Large(Task):
    """A language model of some 7 billion weights."""

    batch: int = 8
    layers: int = 32
    width: int = 4096
    dropout: float = 0.0
    tie: bool = False

    def build_model(self):
        sizes = Sizes(32000, 512, self.layers, self.width, 32, self.dropout, self.tie)
        return Gpt(sizes)

    def load_data(self):
        tokens = Tensors(torch.zeros(8, 513, dtype=torch.long))
        return Data(tokens, tokens)

    def compute_losses(self, model, batch):
        return model(batch[0][:, :-1]).logsumexp(dim=2)


def test_adamw_takes_four_times_the_weights_and_zero_deals_them_out():
    weights = count_weights(Wide()) * 4
    single = found(Wide(), Training())
    assert (single.parameters, single.gradients) == pytest.approx((weights, weights), rel=0.01)
    assert single.optimizer == pytest.approx(2 * weights, rel=0.01)
    assert single.peak > 4 * weights
    zero1 = found(Wide(), Training(strategy="zero1"), 4)
    assert zero1.parameters == single.parameters
    assert zero1.optimizer == pytest.approx(2 * weights / 4, rel=0.05)
    fsdp = found(Wide(), Training(strategy="fsdp"), 4)
    dealt_out = (fsdp.parameters, fsdp.gradients, fsdp.optimizer)
    assert dealt_out == pytest.approx((weights / 4, weights / 4, weights / 2), rel=0.05)
    kept = found(Wide(), Training(strategy="fsdp", reshard_after_forward=False), 4)
    assert fsdp.peak < kept.peak < zero1.peak


@pytest.mark.full
def test_smaller_micro_batches_and_recomputation_leave_fewer_activations():
    task = Wide(batch=1024)
    activations = found(task, Training()).activations
    # Each layer keeps its input, and the last its output; of ReLU input and output are one.
    assert activations == pytest.approx(1024 * 512 * 4 * 9, rel=0.1)
    assert found(task, Training(accumulate=4)).activations == pytest.approx(
        activations / 4, rel=0.02
    )
    assert found(task, Training(strategy="ddp"), 2).activations == pytest.approx(
        activations / 2, rel=0.02
    )
    large = replace(Large(), layers=2)
    plain, again = (
        found(large, Training(activation_checkpointing=number)).activations for number in (0, 1)
    )
    assert again < plain / 2


@pytest.mark.full
def test_a_gpu_has_ddps_buckets_and_the_samples_too():
    here, there = (found(Wide(), Training(strategy="ddp"), 2, gpu) for gpu in (False, True))
    assert there.other - here.other > here.gradients
    assert there.peak > here.peak + here.gradients
    offload = found(Wide(), Training(strategy="fsdp", cpu_offload=True), 2, True)
    assert offload.host == pytest.approx(2 * here.gradients, rel=0.02)
    assert offload.peak < found(Wide(), Training(strategy="fsdp"), 2, True).peak


def test_a_gpu_keeps_a_byte_of_dropout_and_no_scores_of_fused_attention():
    task = Large(layers=1, width=256, dropout=0.1)
    here = found(task, Training(), gpu=False).activations
    there = found(task, Training(), gpu=True).activations
    scores = found(task, Training(attention="math"), gpu=True).activations
    of_scores = 0.9 * 8 * 32 * 512 * 512 * 4
    assert scores > there + of_scores
    assert here > there
    again = found(task, Training(activation_checkpointing=1), gpu=True)
    assert again.activations < there


@pytest.mark.full
def test_seven_billion_weights_are_forecast_without_their_memory():
    before = psutil.Process().memory_info().rss
    forecast = found(Large(), Training())
    assert psutil.Process().memory_info().rss - before < 500 * MB
    assert forecast.parameters > 26_000 * MB
    assert forecast.peak > 4 * forecast.parameters
    assert forecast.fits(memory_of("h200"))
    assert not forecast.fits(memory_of("h100"))


def test_a_pretrained_model_is_forecast_from_its_configuration_alone(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from train_llm import CausalLM

    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        dtype="bfloat16",
    )
    config.save_pretrained(tmp_path)  # and no weights
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
    made.save_pretrained(tmp_path)
    (tmp_path / "text.txt").write_text("a b " * 2000)
    text = str(tmp_path / "text.txt")
    task = CausalLM(model=str(tmp_path), text=text, length=32, batch=4)
    weights = count_weights(replace(task, lora_rank=0))
    adapted = found(task, Training())
    assert adapted.parameters == pytest.approx(2 * weights, rel=0.15)  # the base is in 16 bits
    assert adapted.gradients < adapted.parameters / 10
    assert found(replace(task, lora_rank=0), Training()).parameters >= 4 * weights


@dataclass(frozen=True)
class HalfFrozen(Wide):
    """Wide with a frozen base in bfloat16 and adapters, or with packed weights as of four bits."""

    packed: bool = False

    def build_model(self):
        model = adapt(super().build_model().bfloat16(), LoraOptions(8, targets=("*.0",)))
        if self.packed:
            for layer in adapters(model).values():
                layer.packed = torch.nn.Parameter(
                    torch.empty(self.width * self.width // 2, dtype=torch.uint8), False
                )
        return model


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_frozen_base_counts_in_its_own_format(precision):
    number, width = 8, 512
    base, trained = 2 * number * (width * width + width), 4 * number * 2 * 8 * width
    training = Training("ddp", precision)
    ddp = found(HalfFrozen(), training, 4)
    assert ddp.parameters == pytest.approx(base + trained, rel=0.01)
    assert (ddp.gradients, ddp.optimizer) == pytest.approx((trained, 2 * trained), rel=0.02)
    packed = found(HalfFrozen(packed=True), training, 4)
    assert packed.parameters - ddp.parameters == number * width * width // 2
    fsdp = replace(training, strategy="fsdp")
    for ranks, options in ((4, fsdp), (2, replace(fsdp, shard_ranks=2))):
        forecast = found(HalfFrozen(), options, 4)
        assert forecast.parameters == pytest.approx((base + trained) / ranks, rel=0.02)
        assert forecast.gradients == pytest.approx(trained / ranks, rel=0.05)


def test_averaging_weights_takes_no_memory_for_frozen_ones():
    options = {name: Training(name, "bf16-mixed") for name in ("single", "local_sgd")}
    alone, averaged = (
        found(HalfFrozen(), options["single"]),
        found(HalfFrozen(batch=128), options["local_sgd"], 2),
    )
    assert averaged.peak == alone.peak


def test_the_specs_own_way_is_among_them_once_and_marked():
    for training, ranks in (
        (Training(), 1),
        (Training(strategy="ddp"), 2),
        (Training(strategy="fsdp", reshard_after_forward=False, precision="bf16-mixed"), 4),
        (Training(strategy="fsdp", tensor_parallel=2), 4),
        (Training(strategy="fsdp", shard_ranks=2), 4),
    ):
        ways = variants(training, ranks)
        (own,) = [way for way in ways if way.chosen]
        assert (own.training, own.ranks) == (training, ranks)
        assert len({way.name for way in ways}) == len(ways)


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="no GPU"):
        found(Wide(), Training(strategy="fsdp", cpu_offload=True), 2)
    with pytest.raises(ValueError, match="1f1b"):
        found(Wide(), Training(strategy="pipeline"), 2)
    with pytest.raises(ValueError, match="plan_tensor"):
        found(Wide(), Training(strategy="tensor"), 2)


def test_a_pipeline_is_to_be_measured():
    training = Training(strategy="pipeline", accumulate=4)
    with pytest.raises(ValueError, match="no forecast; measure it: hposvc memory SPEC --measure"):
        found(Wide(), training, 4)
    (own,) = [way for way in variants(training, 4) if way.training.strategy == "pipeline"]
    assert own.chosen
