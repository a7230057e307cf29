"""LoRA under each strategy, and its checkpoints. If these fail, fine-tuning learns something else.

Axes: N samples, T tokens of a sample, F features.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks import Deep, curves, learned, losses, resumed, shared
from torch import nn

from trainables import Training, Worker
from trainables.checkpoints.storing import read
from trainables.lora import LoraOptions, adapt
from trainables.training_state import precision

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))
from techniques import PRECISIONS, TECHNIQUES, refused, training

TRAINED = {f"{at}.{part}" for at in (0, 3, 5) for part in ("lora_A", "lora_B")}
TRAINED |= {"7.weight", "7.bias"}
SEVERAL = ("ddp", "fsdp", "zero1", "local_sgd", "pipeline")
CLOSE = {"64-true": 1e-9, "32-true": 1e-4}  # of the losses; 0.15 where numbers are coarser
CALM = 2.0**8  # a loss scale at which no gradient of these tests overflows


@dataclass(frozen=True)
class Tuned(Deep):
    """Deep on its own pretrained base, with adapters and a new head."""

    lr: float = 0.01
    base: int = 0  # the seed of the pretrained weights
    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(self.base)
            model = Deep(dropout=self.dropout).build_model()
        nn.init.zeros_(model[7].weight)
        options = LoraOptions(rank=2, alpha=4.0, targets=("[035]",), whole=("7",))
        return adapt(model, options)


@dataclass(frozen=True)
class Adamant(Tuned):
    """Tuned, trained by AdamW, an optimizer with state."""

    dropout: float = 0.2

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])


def options(name: str, **given: Any) -> Training:
    """Return the training options of a strategy, in double precision."""
    parts = 2 if name == "pipeline" else 1
    return Training(name, precision="64-true", accumulate=parts, **given)


def calmly(rank: int, *arguments: Any) -> list[list[dict[str, float]]]:
    """Return the curves, without updates skipped while a loss scale is found."""
    precision.FIRST_SCALE = CALM
    return curves(rank, *arguments)


@pytest.mark.full
@pytest.mark.parametrize("strategy", [*SEVERAL, "single"])
def test_each_strategy_learns_what_one_rank_learns(strategy, on_two_ranks, monkeypatch):
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    precisions = () if strategy == "local_sgd" else PRECISIONS  # its updates are each rank's own
    cells = [(name, "64-true") for name in TECHNIQUES] + [("nothing else", p) for p in precisions]
    cells = [cell for cell in cells if not refused(strategy, *cell)]
    trainings = [training(strategy, *cell) for cell in cells]
    alone = [learned(Tuned(), options, 2) for options in trainings]
    on_ranks = alone if strategy == "single" else on_two_ranks(calmly, Tuned(), trainings, 2, 2)[0]
    wrong = []
    for cell, expected, reports in zip(cells, alone, on_ranks, strict=True):
        pairs = zip(losses(reports), losses(expected), strict=True)
        off = max(abs(mine - other) for mine, other in pairs)
        local = ("clip", "optimizer", "layer_decay")  # of a rank's own gradient
        differs = strategy == "local_sgd" and cell[0].startswith(local)
        learns = reports[-1]["train/loss"] < reports[0]["train/loss"]
        if not (learns and (differs or off <= CLOSE.get(cell[1], 0.15))):
            wrong.append(f"{' '.join(cell)}: {off:.2g} off, learns: {learns}")
    assert not wrong, "\n".join(wrong)


def of_kind(folder: Path, kind: str) -> set[str]:
    """Return the names of a checkpoint's tensors with this prefix, without the prefix."""
    names = read(folder).tensors
    return {name.removeprefix(kind) for name in names if name.startswith(kind)}


@pytest.mark.full
def test_a_checkpoint_holds_what_is_trained_and_goes_on_bit_by_bit(on_two_ranks, tmp_path):
    trainings = [options(name, ema=0.9) for name in SEVERAL]
    for expected, reports in on_two_ranks(resumed, Adamant(), trainings, 2, tmp_path)[0]:
        assert reports == expected
    for number in range(len(SEVERAL)):
        folder = tmp_path / f"{number}" / "alone" / "1-2"
        assert of_kind(folder, "model.") == of_kind(folder, "average.") == TRAINED
        momenta = of_kind(folder, "optimizer.")
        assert {name.rpartition(".")[0] for name in momenta} == TRAINED


def gone_on(rank: int, folder: Path, base: int) -> list[str]:
    """Return how each strategy resumes each one's checkpoint: an error, or nothing."""
    messages = []
    for name in SEVERAL:
        alone = Worker.alone(until=1, folder=folder / name, training=options(name))
        worker = replace(alone, rank=rank, world_size=2, total=2)
        Tuned().train(worker)
        start = shared(worker.reports[-1].checkpoint)
        for other in SEVERAL:
            order = {"order": 2, "first": 2, "until": 2, "start": start}
            try:
                again = replace(worker, training=options(other), trial=f"to {other}", **order)
                Tuned(base=base).train(again)
                messages.append("")
            except ValueError as error:
                messages.append(str(error))
    return messages


@pytest.mark.full
def test_every_strategy_goes_on_upon_the_same_base_and_on_no_other(on_two_ranks, tmp_path):
    assert on_two_ranks(gone_on, tmp_path / "same", 0)[0] == [""] * len(SEVERAL) ** 2
    for message in on_two_ranks(gone_on, tmp_path / "other", 1)[1]:
        assert "rests on frozen weights of fingerprint" in message
        assert "give it the pretrained weights of the trial" in message
