"""Shares of epochs on public learning curves. If these fail, RESULTS.md claims too much."""

import math

import public_curves
import pytest
from public_curves import EPOCHS, METHODS, PEERS, Sweeps, curve, run, told

MINE = "gp + ASHA"
LATE = {rival: [1.0] * (EPOCHS - 1) + [0.5] for rival in PEERS}


def share(mine, rivals=PEERS, **theirs):
    losses = {(name, "t", 0): values for name, values in {**LATE, **theirs, MINE: mine}.items()}
    return Sweeps(losses).share(MINE, rivals, "t", 0)


def test_a_share_is_the_epoch_at_which_the_end_of_the_best_rival_is_reached():
    assert share([0.9] * 29 + [0.5] * 600) == 30 / EPOCHS
    assert share([0.9] * 29 + [0.5] * 600, BOHB=[0.4] * EPOCHS) == 2  # never
    assert share([0.4] * 600, rivals=["BOHB"], BOHB=[math.nan, *[0.4] * EPOCHS]) == 1 / EPOCHS


def test_reports_count_up_to_the_end_of_the_rival_alone():
    assert share([0.9] * 299 + [0.3] * 300, BOHB=[0.8] * EPOCHS + [0.2]) == 1


def test_what_is_told_of_shares():
    assert told([0.1, 0.2, 0.3, 1.2, 2.0]) == ["0.30 (0.20 – 1.20)", "40%", "20%"]


@pytest.mark.parametrize("metric", public_curves.METRICS)
def test_a_sweep_reports_the_published_curves(metric, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(public_curves, "EPOCHS", 40)
    losses = run(METHODS["random + ASHA"], "34539", metric, seed=0)
    assert len(losses) == 40
    assert all(math.isfinite(loss) and loss >= 0 for loss in losses)
    assert len(set(losses)) > 20
    params = {
        "task": f"34539 {metric}",
        "batch_size": 64,
        "learning_rate": 1e-2,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "num_layers": 2,
        "max_units": 128,
        "max_dropout": 0.2,
    }
    first, last = (curve(params, step)[0]["loss"] for step in (1, 27))
    assert last < first
