"""Weights mapped from files. If these fail, each rank holds a whole model, or another one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model
from tasks import Decoded, Decoding, curves, learned, losses, resumed
from torch import Tensor, nn

from trainables import Data, Task, Tensors, Training, Worker
from trainables.data import Batch
from trainables.lora import LoraOptions, adapt
from trainables.monitoring.memory import STATUS
from trainables.parallel.strategy import choose
from trainables.pretrained import load_pretrained
from trainables.trainer.fit import build_state

WIDTH, LAYERS = 1024, 40
MODEL = 4 * LAYERS * WIDTH * WIDTH  # bytes


def blocks() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH, False)) for _ in range(LAYERS)))


@dataclass(frozen=True)
class Large(Task):
    """A model of 168 MB, mapped from a file or made of random numbers."""

    file: str = ""

    def build_model(self) -> nn.Module:
        return load_pretrained(blocks, Path(self.file)) if self.file else blocks()

    def load_data(self) -> Data:
        samples = Tensors(torch.zeros(4, WIDTH))
        return Data(samples, samples)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        outputs: Tensor = model(batch[0])
        return outputs.square()


def own_memory() -> int:
    """Return the bytes of this process's own memory: without pages of files, which ranks share."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024


@contextmanager
def sampled(samples: list[int]) -> Iterator[None]:
    """Sample the process's own memory every millisecond."""
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.001):
            samples.append(own_memory())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield
    finally:
        ended.set()
        sampler.join()


def growth(rank: int, file: str) -> float:
    """Return how much a rank's own memory grows at most, in sizes of the model."""
    worker = replace(Worker.alone(training=Training("fsdp")), rank=rank, world_size=4)
    build_state(Decoded(), choose(worker))  # imports what a training needs
    samples = [own_memory()]
    with sampled(samples):
        build_state(Large(file=file), choose(worker))
    return (max(samples) - samples[0]) / MODEL


@pytest.mark.long
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells a process's own memory")
def test_a_rank_of_fsdp_never_holds_more_of_a_mapped_model_than_its_shards(on_ranks, tmp_path):
    save_model(blocks(), str(tmp_path / "model.safetensors"))
    mapped = on_ranks(growth, str(tmp_path / "model.safetensors"), ranks=4)
    assert max(mapped) < 0.35  # a quarter are its shards
    random = on_ranks(growth, "", ranks=4)
    assert min(random) > 0.9  # so the measurement can tell


@dataclass(frozen=True)
class Tuned(Decoded):
    """Decoded, with a tied weight and a buffer, from a file; with adapters or a new norm."""

    lr: float = 0.05
    file: str = ""
    kind: str = "full"

    def build_model(self) -> nn.Module:
        if self.kind == "copied":
            model = load_pretrained(Decoding, Path(self.file))
            copy = Decoding()
            copy.load_state_dict(model.state_dict())
            return copy
        model = load_pretrained(Decoding, Path(self.file))
        if self.kind == "new norm":
            model.norm = nn.LayerNorm(8)
        if self.kind == "adapted":
            adapt(model, LoraOptions(rank=2, targets=("*.query", "*.output"), whole=("norm",)))
        return model

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.optim.SGD(trained, lr=self.lr, momentum=0.9)


def runs(rank: int, file: str, kinds: tuple[str, ...], trainings: tuple[Training, ...]):
    return [curves(rank, Tuned(file=file, kind=kind), trainings, 2) for kind in kinds]


@pytest.mark.long
def test_every_strategy_learns_from_mapped_weights_what_one_rank_learns(on_two_ranks, tmp_path):
    file = str(tmp_path / "model.safetensors")
    torch.manual_seed(1)
    save_model(Decoding(), file)
    before = Path(file).read_bytes()
    trainings = tuple(Training(name, "64-true") for name in ("ddp", "fsdp", "zero1"))
    kinds = ("full", "new norm", "adapted")
    exact = Training(precision="64-true")
    copied = losses(learned(Tuned(file=file, kind="copied"), exact))
    for kind, found in zip(kinds, on_two_ranks(runs, file, kinds, trainings)[0], strict=True):
        alone = losses(learned(Tuned(file=file, kind=kind), exact))
        assert (alone == pytest.approx(copied)) is (kind != "adapted")
        for reports in found:
            assert losses(reports) == pytest.approx(alone, abs=1e-12)
    # In the format of the file, one rank trains the mapped pages themselves: a copy of its own.
    learned(Tuned(file=file), Training())
    assert Path(file).read_bytes() == before


@pytest.mark.full
def test_a_mapped_base_goes_on_bit_by_bit(on_two_ranks, tmp_path):
    file = str(tmp_path / "model.safetensors")
    save_model(Decoding().bfloat16(), file)
    trainings = [Training(name) for name in ("ddp", "fsdp")]
    task = Tuned(file=file, kind="adapted")
    for expected, reports in on_two_ranks(resumed, task, trainings, 2, tmp_path)[0]:
        assert reports == expected
