"""Technique x strategy x precision: each cell that is not refused learns what one rank learns.

If a cell fails, a combination that `validate` lets pass trains something else than it says.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tasks import Deep, curves, learned

from trainables.fitting import precision

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from techniques import PRECISIONS, STRATEGIES, TECHNIQUES, WORKERS, refused, training

# Of losses near 1: what rounding makes of ranks' other order of sums in some epochs.
CLOSE = {
    "64-true": 1e-9,
    "32-true": 1e-4,
    "bf16-mixed": 0.05,
    "16-mixed": 0.05,
    "bf16-true": 0.15,
    "16-true": 0.05,
}
# Means over ranks of what is clipped, or divided by its own size, are others than of the gradient.
LOCAL_DIFFERS = ("clip", "optimizer", "layer_decay")
STEPS = 2
CALM = 2.0**8  # a loss scale at which no gradient of these tests overflows
SEVERAL = [name for name in STRATEGIES if name != "single"]


def cells(strategy: str) -> list[tuple[str, str]]:
    """The techniques and precisions that a strategy lets pass."""
    return [
        (technique, precision)
        for technique in TECHNIQUES
        for precision in PRECISIONS
        if not refused(strategy, technique, precision)
    ]


@pytest.mark.parametrize("strategy", SEVERAL)
def test_each_cell_learns_what_one_rank_learns(strategy, on_ranks, monkeypatch):
    if strategy.startswith("deepspeed") and find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed: pip install 'hposvc[deepspeed]'")
    ranks = WORKERS.get(strategy, 2)
    wanted = [training(strategy, *cell) for cell in cells(strategy)]
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    heard = on_ranks(calmly, Deep(), wanted, ranks, STEPS, ranks=ranks)[0]
    wrong = []
    for cell, options, found in zip(cells(strategy), wanted, heard, strict=True):
        expected = learned(Deep(), options, STEPS)
        off = max(map(_off, found, expected))
        learns = found[-1]["train/loss"] < found[0]["train/loss"]
        differs = strategy == "local_sgd" and cell[0].startswith(LOCAL_DIFFERS)
        if not (learns and (differs or off <= CLOSE[cell[1]])):
            wrong.append(f"{' '.join(cell)}: {off:.2g} off, learns: {learns}")
    assert not wrong, "\n".join(wrong)


def calmly(rank: int, *arguments: Any) -> list[list[dict[str, float]]]:
    """The curves, without updates that are skipped while a loss scale is found.

    How many they are depends on how large a rank's share is.
    """
    precision.FIRST_SCALE = CALM
    return curves(rank, *arguments)


def _off(found: dict[str, float], expected: dict[str, Any]) -> float:
    return max(abs(found[name] - expected[name]) for name in ("train/loss", "val/loss"))


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_each_technique_learns_on_one_rank_at_every_precision(technique):
    for name in PRECISIONS:
        if not refused("single", technique, name):
            losses = [
                seen["train/loss"] for seen in learned(Deep(), training("single", technique, name))
            ]
            assert losses[-1] < losses[0], name
