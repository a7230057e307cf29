"""`hposvc scaling`: its table, and what is refused."""

import json
from pathlib import Path

import pytest
from printed import text_of

from hposvc import spec as specs
from hposvc.analysis.memory import Case
from hposvc.analysis.worker_scaling import ScalingPlan, ScalingSpeed, one_trial_spec
from hposvc.verbs.scaling import table

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"


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


def test_a_failed_number_of_workers_is_none_in_the_table():
    speeds = [
        ScalingSpeed(1, 64, 64, samples_per_s=120.0, efficiency=1.0),
        ScalingSpeed(2, 64, 32, failure="no"),
    ]
    text = text_of(table(speeds))
    assert "100.0%" in text
    assert "no" not in text


def test_a_short_run_has_its_own_length_where_trials_end_by_their_size():
    sets = {
        "fidelity": {"unit": "token", "max": 1000},
        "training.tokens_per_weight": 20,
        "scheduler": "fifo",
        "engine": "local",
    }
    spec = specs.load(DIGITS, sets)
    short = one_trial_spec(spec, Case.of(spec, 1), ScalingPlan((1,), 3), 1)
    assert spec.training.tokens_per_weight == 20
    assert short.training.tokens_per_weight is None
    assert short.training.schedule == spec.training.schedule
