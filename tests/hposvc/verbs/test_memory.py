"""`hposvc memory`: what a trial takes for each strategy, and what is refused."""

import json
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
BASE = f"""
trainable: {Path(__file__).parents[2] / "support" / "tuned.py"}:Tuned
metric: {{name: val/loss, goal: minimize}}
fidelity: {{max: 2}}
parameters: {{lr: {{min: 1e-3, max: 1e-1, log: true}}}}
trials: {{max: 8}}
"""
COLUMNS = {"parameters", "gradients", "optimizer", "activations", "other", "peak", "fullest"}


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


def test_trials_on_one_base_are_forecast_and_not_measured(hposvc, tmp_path):
    path = tmp_path / "tuned.yaml"
    path.write_text(BASE)
    base = ("memory", path)
    peaks = {}
    for extra in ("share_base=1", "share_base=8", "joint_passes=true"):
        settings = ("--set", "training.share_base=8", "--set", f"training.{extra}")
        code, out, _ = hposvc(*base, *settings, "-o", "json")
        assert code == 0
        peaks[extra] = next(row["peak"] for row in json.loads(out)["strategies"] if row["chosen"])
    one, turns, joint = peaks.values()
    assert one < turns < joint < 8 * one
    code, _, error = hposvc(*base, "--set", "training.share_base=8", "--measure")
    assert code == 2
    assert "training.share_base: is 8, and --measure trains one trial at a time" in error


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
