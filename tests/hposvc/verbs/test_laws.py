"""`hposvc laws`: a law that is fitted and drawn, and sizes that nobody says."""

import json
from pathlib import Path

import pytest
from simulated_sweeps import make_spec

from hposvc import api


def by_size(params, step):
    """Return a loss that follows a law of the width; the data seen are a metric."""
    return {"loss": 1 + 30 / params["width"] ** 0.5, "tokens": 1e6 * step}, 1.0


@pytest.fixture
def swept(hposvc, tmp_path, monkeypatch):
    """Run a simulated sweep over widths."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    spec = make_spec(
        engine={"type": "simulate", "curve": "test_laws:by_size"},
        parameters={"width": {"values": [16, 32, 64, 128, 256]}},
        search="grid",
        scheduler="fifo",
        fidelity={"max": 2},
        trials={"max": 5, "parallel": 2},
        tracking={"send_to": []},
    )
    sweeps = api.Sweeps.open(tmp_path / "home")
    assert api.drive(sweeps, api.create(sweeps, spec, "sizes")).state.state == "COMPLETED"


@pytest.mark.full
@pytest.mark.usefixtures("swept")
def test_laws_are_fitted_to_what_trials_say_of_their_size(hposvc, tmp_path):
    sizes = ["--weights", "width", "--data", "tokens", "--plot", tmp_path / "law.png"]
    code, out, error = hposvc("laws", "sizes", *sizes, "-o", "json")
    assert code == 0, error
    report = json.loads(out)
    assert report["law"]["alpha"] == pytest.approx(0.5, rel=0.01)
    assert report["law"]["beta"] == 0.0
    assert len(report["points"]) == 5
    assert (tmp_path / "law.png").stat().st_size > 1000
    code, out, _ = hposvc("laws", "sizes", *sizes)
    assert code == 0
    assert "loss = E + A/N^alpha, fitted to 5 points" in out
    code, _, error = hposvc("laws", "sizes", *sizes[:4], "--budget", "1e20")
    assert code == 2
    assert "vary both" in error


@pytest.mark.usefixtures("swept")
def test_a_size_that_nobody_says_is_refused(hposvc):
    code, _, error = hposvc("laws", "sizes", "--weights", "width", "--data", "bytes")
    assert code == 2
    assert "'bytes'" in error
    code, _, error = hposvc("laws", "sizes")
    assert code == 2
    assert "of a Task only" in error
