"""Technique x strategy x precision: each cell that is not refused learns what one rank learns.

If a cell fails, a combination that `validate` lets pass trains something else than it says.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tasks import Deep, curves, learned
from tolerances import CALM, CLOSE, LOCAL_DIFFERS

from trainables.training_state import precision

sys.path.insert(0, str(Path(__file__).parents[3] / "docs"))
from techniques import PRECISIONS, STRATEGIES, TECHNIQUES, WORKERS, refused, training

STEPS = 2
SEVERAL = [name for name in STRATEGIES if name != "single"]
TELLING = ("ddp", "fsdp + tensor")  # whose cells CI runs: whole weights, and parts of parts


def every(strategy: str) -> list[tuple[str, str]]:
    """Return the techniques and precisions that a strategy lets pass."""
    return [
        (technique, precision)
        for technique in TECHNIQUES
        for precision in PRECISIONS
        if not refused(strategy, technique, precision)
    ]


def covering(strategy: str) -> list[tuple[str, str]]:
    """Return every precision without a technique, and every technique at one precision.

    Which one turns with the strategy; on one rank every technique meets every precision below.
    """
    cells = [cell for cell in every(strategy) if cell[0] == "nothing else"]
    for number, technique in enumerate(TECHNIQUES):
        possible = [cell for cell in every(strategy) if cell[0] == technique]
        if possible and technique != "nothing else":
            cells.append(possible[(SEVERAL.index(strategy) + number) % len(possible)])
    return cells


CELLS = [
    *(pytest.param(covering, name, marks=pytest.mark.long) for name in TELLING),
    *(
        pytest.param(every, name, marks=[pytest.mark.full, pytest.mark.timeout(3600)])
        for name in SEVERAL
    ),
]


@pytest.mark.parametrize(("form", "strategy"), CELLS)
def test_each_cell_learns_what_one_rank_learns(form, strategy, on_ranks, monkeypatch):
    if strategy.startswith("deepspeed") and find_spec("deepspeed") is None:
        pytest.skip("needs DeepSpeed: pip install 'hposvc[deepspeed]'")
    ranks = WORKERS.get(strategy, 2)
    cells = form(strategy)
    wanted = [training(strategy, *cell) for cell in cells]
    monkeypatch.setattr(precision, "FIRST_SCALE", CALM)
    all_reports = on_ranks(calmly, Deep(), wanted, ranks, STEPS, ranks=ranks)[0]
    wrong = []
    for cell, options, reports in zip(cells, wanted, all_reports, strict=True):
        expected = learned(Deep(), options, STEPS)
        off = max(map(_off, reports, expected))
        learns = reports[-1]["train/loss"] < reports[0]["train/loss"]
        differs = strategy == "local_sgd" and cell[0].startswith(LOCAL_DIFFERS)
        if not (learns and (differs or off <= CLOSE[cell[1]])):
            wrong.append(f"{' '.join(cell)}: {off:.2g} off, learns: {learns}")
    assert not wrong, "\n".join(wrong)


def calmly(rank: int, *arguments: Any) -> list[list[dict[str, float]]]:
    """Return the curves, without updates skipped while the loss scale settles.

    Their number depends on the size of a rank's share.
    """
    precision.FIRST_SCALE = CALM
    return curves(rank, *arguments)


def _off(found: dict[str, float], expected: dict[str, Any]) -> float:
    return max(abs(found[name] - expected[name]) for name in ("train/loss", "val/loss"))


@pytest.mark.parametrize(
    "technique",
    [
        pytest.param(name, marks=pytest.mark.full) if name == "compile" else name
        for name in TECHNIQUES
    ],
)
def test_each_technique_learns_on_one_rank_at_every_precision(technique):
    for name in PRECISIONS:
        if not refused("single", technique, name):
            losses = [
                seen["train/loss"] for seen in learned(Deep(), training("single", technique, name))
            ]
            assert losses[-1] < losses[0], name
