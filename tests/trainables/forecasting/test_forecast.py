"""Forecasts of memory. If they fail, people rent GPUs that are too small, or too large."""

from dataclasses import dataclass, replace

import psutil
import pytest
import torch
from tasks import Deep
from torch import nn

from trainables import Data, Task, Tensors, Training
from trainables.forecasting.forecast import Forecast, Variant, foresee, micro_batch, variants
from trainables.forecasting.gpus import memory_of
from trainables.forecasting.ledger import NotForeseen
from trainables.forecasting.line import under_way
from trainables.forecasting.outline import count, elements
from trainables.zoo.gpt import Gpt, Sizes

MB = 10**6


@dataclass(frozen=True)
class Wide(Task):
    """A row of equal layers; nothing is kept for long but their inputs."""

    batch: int = 64
    width: int = 512
    layers: int = 8

    def build_model(self):
        sizes = [self.width] * self.layers
        return nn.Sequential(*(nn.Sequential(nn.Linear(each, each), nn.ReLU()) for each in sizes))

    def load_data(self):
        samples = Tensors(torch.zeros(8, self.width))
        return Data(samples, samples)

    def compute_losses(self, model, batch):
        return model(batch[0]).square()


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


@dataclass(frozen=True)
class Looking(Wide):
    """Branches on what the model has computed."""

    def compute_losses(self, model, batch):
        found = model(batch[0]).square()
        return found if found.mean().item() < 1 else found.sqrt()


def found(task: Task, training: Training, ranks: int = 1, gpu: bool = False) -> Forecast:
    return foresee(task, task.load_data(), Variant("", training, ranks), gpu)


def test_adamw_takes_four_times_the_weights_and_zero_deals_them_out():
    weights = count(Wide()) * 4
    whole = found(Wide(), Training())
    assert (whole.parameters, whole.gradients) == pytest.approx((weights, weights), rel=0.01)
    assert whole.optimizer == pytest.approx(2 * weights, rel=0.01)
    assert whole.peak > 4 * weights
    zero1 = found(Wide(), Training(strategy="zero1"), 4)
    assert zero1.parameters == whole.parameters
    assert zero1.optimizer == pytest.approx(2 * weights / 4, rel=0.05)
    fsdp = found(Wide(), Training(strategy="fsdp"), 4)
    dealt_out = (fsdp.parameters, fsdp.gradients, fsdp.optimizer)
    assert dealt_out == pytest.approx((weights / 4, weights / 4, weights / 2), rel=0.05)
    kept = found(Wide(), Training(strategy="fsdp", reshard=False), 4)
    assert fsdp.peak < kept.peak < zero1.peak
    line = found(Wide(), Training(strategy="pipeline", accumulate=4), 4)
    assert line.parameters == pytest.approx(weights / 4, rel=0.01)


def test_sgd_without_momentum_keeps_nothing():
    task, training = Wide(), Training(optimizer="sgd", momentum=0.0)
    assert found(task, training).optimizer == 0
    assert found(task, replace(training, ema=0.9)).optimizer == found(task, training).parameters


def test_smaller_micro_batches_and_recomputation_leave_fewer_activations():
    task = Wide(batch=1024)
    whole = found(task, Training()).activations
    # Each layer keeps its input, and the last its output; of ReLU input and output are one.
    assert whole == pytest.approx(1024 * 512 * 4 * 9, rel=0.1)
    assert found(task, Training(accumulate=4)).activations == pytest.approx(whole / 4, rel=0.02)
    assert found(task, Training(strategy="ddp"), 2).activations == pytest.approx(
        whole / 2, rel=0.02
    )
    large = replace(Large(), layers=2)
    plain, again = (found(large, Training(recompute=number)).activations for number in (0, 1))
    assert again < plain / 2


def test_a_gpu_has_ddps_buckets_and_the_samples_too():
    here, there = (found(Wide(), Training(strategy="ddp"), 2, gpu) for gpu in (False, True))
    assert there.other - here.other > here.gradients
    assert there.peak > here.peak + here.gradients
    offload = found(Wide(), Training(strategy="fsdp", offload=True), 2, True)
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
    again = found(task, Training(recompute=1), gpu=True)
    assert again.activations < there


def test_seven_billion_weights_are_forecast_without_their_memory():
    before = psutil.Process().memory_info().rss
    whole = found(Large(), Training())
    assert psutil.Process().memory_info().rss - before < 500 * MB
    assert whole.parameters > 26_000 * MB
    assert whole.peak > 4 * whole.parameters
    assert whole.fits(memory_of("h200"))
    assert not whole.fits(memory_of("h100"))


def test_a_pretrained_model_is_forecast_from_its_configuration_alone(tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from trainables.zoo.hugging import CausalLM

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
    weights = count(replace(task, lora_rank=0))
    adapted = found(task, Training())
    assert adapted.parameters > 4 * weights
    assert adapted.gradients < adapted.parameters / 10
    assert found(task, Training(precision="bf16-true")).parameters < 0.6 * adapted.parameters


def test_weights_that_are_shared_count_once():
    tied, apart = (count(replace(Large(), layers=1, tie=tie)) for tie in (True, False))
    assert apart - tied == 32000 * 4096
    tied_mb = found(replace(Large(), layers=1, tie=True), Training()).parameters
    assert tied_mb == pytest.approx(tied * 4, rel=0.01)


def test_a_mask_whose_values_are_not_known_keeps_everything():
    forecast = found(Deep(), Training())
    assert forecast.peak > forecast.parameters
    assert elements(Deep()) == 5


def test_what_needs_numbers_is_refused_with_the_reason():
    with pytest.raises(NotForeseen, match="looks at a number"):
        found(Looking(), Training())


def test_the_specs_own_way_is_among_them_once_and_marked():
    for training, ranks in (
        (Training(), 1),
        (Training(strategy="ddp"), 2),
        (Training(strategy="fsdp", reshard=False, precision="bf16-mixed"), 4),
        (Training(strategy="fsdp", tensor_ranks=2), 4),
    ):
        ways = variants(training, ranks)
        (own,) = [way for way in ways if way.chosen]
        assert (own.training, own.ranks) == (training, ranks)
        assert len({way.name for way in ways}) == len(ways)


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="no GPU"):
        found(Wide(), Training(strategy="fsdp", offload=True), 2)
    with pytest.raises(ValueError, match="1f1b"):
        found(Wide(), Training(strategy="pipeline"), 2)
    with pytest.raises(ValueError, match="plan_tensor"):
        found(Wide(), Training(strategy="tensor"), 2)


def test_the_first_rank_of_a_pipeline_keeps_most():
    for schedule, most in (("gpipe", 8), ("1f1b", 4), ("interleaved", 5.5)):
        training = Training(strategy="pipeline", pipeline_schedule=schedule, accumulate=8)
        assert under_way(training, 4, 0) == most
        assert under_way(training, 4, 0) >= under_way(training, 4, 3)


@pytest.mark.parametrize(
    ("batch", "training", "ranks", "samples"),
    [
        (10, Training(), 1, 10),
        (10, Training(strategy="ddp", accumulate=2), 3, 2),
        (10, Training(strategy="tensor"), 2, 10),
        (10, Training(strategy="fsdp", tensor_ranks=2), 4, 5),
    ],
)
def test_the_largest_micro_batch_counts(batch, training, ranks, samples):
    assert micro_batch(batch, training, ranks) == samples


def test_gpus_are_known_by_name_and_by_size():
    assert memory_of("80G") == 80 * 10**9
    assert memory_of("79GiB") == 79 * 2**30
    assert memory_of("H100") > memory_of("A100-40g")
    with pytest.raises(ValueError, match=r"h200\?"):
        memory_of("h2000")
