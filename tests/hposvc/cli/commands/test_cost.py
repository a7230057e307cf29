"""`hposvc memory`, `scaling` and `laws`, which forecast a sweep's cost."""

import json
from pathlib import Path

import pytest
from simulated_sweeps import make_spec

from hposvc import api

DIGITS = Path(__file__).parents[4] / "examples" / "digits.yaml"
COLUMNS = {"parameters", "gradients", "optimizer", "activations", "other", "peak", "fullest"}


def by_size(params, step):
    """Return a loss that follows a law of the width; the data seen are a metric."""
    return {"loss": 1 + 30 / params["width"] ** 0.5, "tokens": 1e6 * step}, 1.0


def test_memory_of_each_strategy_and_whether_it_fits(hposvc):
    code, out, _ = hposvc("memory", DIGITS, "--gpu-memory", "l4", "-o", "json")
    assert code == 0
    report = json.loads(out)
    assert report["configuration"]["batch"] == 64
    assert report["measured"] is None
    (chosen,) = [row for row in report["strategies"] if row["chosen"]]
    assert (chosen["strategy"], chosen["workers"], chosen["fits"]) == ("ddp", 2, True)
    assert chosen.keys() >= COLUMNS
    (refused,) = [row for row in report["strategies"] if row["strategy"] == "tensor"]
    assert refused["fits"] is None
    assert "plan_tensor" in refused["refused"]
    code, out, _ = hposvc("memory", DIGITS, "--workers", 1, "-o", "json")
    (chosen,) = [row for row in json.loads(out)["strategies"] if row["chosen"]]
    assert (chosen["strategy"], chosen["workers"], chosen["fits"]) == ("single", 1, None)
    code, out, _ = hposvc("memory", DIGITS, "--gpu-memory", "0.6G", "--workers", 4)
    assert code == 0
    assert "→   ddp" in out
    assert "no" in out.split("ddp", 1)[1].splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--gpu-memory", "h10"], "(h100?)"),
        (["--gpu-memory", "h100", "--measure"], "resources.gpus_per_worker"),
        (["--set", "training.strategy=dpp"], "ddp"),
    ],
)
def test_memory_says_what_is_wrong(hposvc, arguments, reason):
    code, out, error = hposvc("memory", DIGITS, *arguments)
    assert (code, out) == (2, "")
    assert reason in error


def test_trials_at_once_are_forecast_and_have_no_scaling(hposvc):
    alone = ("--set", "resources.workers=1", "--set", "training.strategy=single")
    settings = (*alone, "--set", "training.trials_per_process=4")
    code, out, _ = hposvc("memory", DIGITS, *settings, "-o", "json")
    assert code == 0
    rows = {row["strategy"]: row for row in json.loads(out)["strategies"]}
    assert rows["single, trials_per_process: 4"]["chosen"]
    assert rows["single, trials_per_process: 4"]["peak"] > 4 * rows["single"]["parameters"]
    code, _, error = hposvc("scaling", DIGITS, *settings)
    assert code == 2
    assert (
        "training.trials_per_process: is 4, and trials that train at once have one worker" in error
    )


def test_scaling_leaves_the_warm_up_out_and_draws(hposvc, tmp_path):
    options = ["--workers", "1", "--updates", "3", "--plot", tmp_path / "speed.svg"]
    engine = ["--set", "engine=local", "--set", "resources.workers=1", "-o", "json"]
    code, out, error = hposvc("scaling", DIGITS, *options, *engine)
    assert code == 0, error
    (row,) = json.loads(out)
    assert (row["workers"], row["batch"], row["efficiency"]) == (1, 64, 1.0)
    assert row["samples_per_s"] == row["samples_per_s_per_rank"] > 0
    assert row["memory_gb"] > 0
    assert (tmp_path / "speed.svg").read_text().lstrip().startswith("<?xml")
    assert not (tmp_path / "home" / "sweeps").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["--workers", "1,two"], "numbers like 1,2,4"), (["--plot", "speed.txt"], ".png, .svg, .pdf")],
)
def test_scaling_says_what_is_wrong(hposvc, arguments, reason):
    code, _, error = hposvc("scaling", DIGITS, *arguments)
    assert code == 2
    assert reason in error


@pytest.fixture
def swept(hposvc, tmp_path, monkeypatch):
    """Run a simulated sweep over widths."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    spec = make_spec(
        engine={"type": "simulate", "curve": "test_cost:by_size"},
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
