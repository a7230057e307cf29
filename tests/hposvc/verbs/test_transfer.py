"""`hposvc transfer`: what it prints and draws of one sweep, and of several."""

import math
from pathlib import Path

import pytest
from simulated_sweeps import make_spec

from hposvc import api

RATES = {"min": 1e-5, "max": 1e-1, "log": True}


def shifting(params, step):
    """Return a loss whose best rate halves with each doubling of the width; high rates diverge."""
    away = math.log2(params["lr"]) + 9 + math.log2(params["width"] / 64)
    return {"loss": math.nan if away > 4 else 1 + 0.05 * away**2}, 1.0


def swept(home, monkeypatch, name, width, trials):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    spec = make_spec(
        engine={"type": "simulate", "curve": "test_transfer:shifting"},
        parameters={"lr": RATES, "width": width},
        fidelity={"max": 2},
        trials={"max": trials, "parallel": 2},
        tracking={"send_to": []},
    )
    sweeps = api.Sweeps.open(home)
    assert api.drive(sweeps, api.create(sweeps, spec, name)).state.state == "COMPLETED"


def test_a_sweep_over_widths_is_judged_and_drawn(hposvc, tmp_path, monkeypatch):
    swept(tmp_path / "home", monkeypatch, "all", {"values": [32, 64, 128], "ordered": True}, 48)
    answer = hposvc("transfer", "all", "--plot", tmp_path / "plot.png")
    assert answer.code == 0, answer.err
    assert "Does not transfer: from width 32 to 128 the best lr is multiplied by 0.5" in answer.out
    assert "The best lr of width 32 costs 0." in answer.out
    assert (tmp_path / "plot.png").stat().st_size > 1000
    data = hposvc("transfer", "all", "-o", "json").data
    assert [best["size"] for best in data["optima"]] == [32, 64, 128]
    assert sum(best["diverged"] for best in data["optima"]) > 0
    assert data["shift"]["mean"] == pytest.approx(-1, abs=0.05)


def test_several_sweeps_are_judged_together(hposvc, tmp_path, monkeypatch):
    for width in (32, 64, 128):
        swept(tmp_path / "home", monkeypatch, f"w{width}", width, 16)
    answer = hposvc("transfer", "w32", "w64", "w128", "-o", "json")
    assert answer.data["answer"] == "does not transfer"
    answer = hposvc("transfer", "w32", "w64")
    assert answer.code == 2
    assert "have 2 values of width; a line through optima needs 3 or more" in answer.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--over", "depth"), "has no number above 0 under 'depth'; it has lr, width"),
        (("--plot", "plot.txt"), "must end with .png, .svg, .pdf"),
    ],
)
def test_what_is_not_there_is_named(hposvc, tmp_path, monkeypatch, arguments, message):
    swept(tmp_path / "home", monkeypatch, "all", 64, 4)
    answer = hposvc("transfer", "all", *arguments)
    assert answer.code == 2
    assert message in answer.err
