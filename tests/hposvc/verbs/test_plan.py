"""`hposvc plan`: its text, and the sources of its times."""

import io
import json

import pytest
from rich.console import Console
from simulated_sweeps import make_spec

from hposvc.analysis.forecast.evidence import Evidence
from hposvc.analysis.forecast.forecast import Forecast, ForecastRung, Saving
from hposvc.analysis.forecast.plan import Plan
from hposvc.estimate import Estimate
from hposvc.verbs.plan import describe

SIMULATED = {
    "name": "toy",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 9, "unit": "epoch"},
    "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
    "search": "random",
    "scheduler": "asha",
    "trials": {"max": 12, "parallel": 4},
    "engine": {"type": "simulate", "curve": "simulated_sweeps:slow"},
}


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps(SIMULATED))
    return path


def test_without_a_source_it_says_what_it_cannot_know(hposvc, sweep):
    answer = hposvc("plan", sweep)
    assert answer.code == 0
    assert answer.out.startswith("12 trials will train ")
    assert "no source of times" in answer.out
    assert "how long a step takes: give --pilot, --from ID or --seconds-per-step S" in answer.out
    assert "CPU-hours" not in answer.out


def test_finalists_of_another_size_are_no_part_of_a_forecast(hposvc, sweep):
    given = ("--set", "finalists.set.lr=0.5", "--seconds-per-step", "3", "-o", "json")
    plans = [hposvc("plan", sweep, *extra, *given[-4:]).data for extra in (given[:2], ())]
    assert plans[0].pop("unknown")[0].startswith("what finalists cost with finalists.set")
    assert not any("finalists" in unknown for unknown in plans[1].pop("unknown"))
    assert plans[0] == plans[1]


@pytest.mark.full
def test_an_earlier_sweep_of_the_same_code_is_found_and_the_forecast_is_kept(hposvc, sweep):
    many = ("--set", "trials.max=210")  # so many that a simulation is not sent to MLflow
    assert hposvc("run", sweep, "--id", "before", *many).code == 0
    answer = hposvc("plan", sweep, "--set", "trials.max=20", "-o", "json")
    assert answer.code == 0
    plan = answer.data
    assert plan["source"]["sweeps"] == ["before"]
    assert plan["trials"]["expected"] == pytest.approx(20)
    assert 30 < plan["source"]["seconds_per_step"] < 40
    assert plan["wall_s"]["low"] < plan["wall_s"]["expected"] < plan["wall_s"]["high"]
    assert {saving["change"] for saving in plan["savings"]} >= {"10 trials in place of 20"}
    answer = hposvc("plan", sweep)
    assert "From 210 trials of before" in answer.out


def test_a_pilot_measures_and_leaves_no_sweep(hposvc, sweep):
    answer = hposvc("plan", sweep, "--pilot", "-o", "json")
    assert answer.code == 0
    plan = answer.data
    assert plan["source"]["origin"] == "pilot"
    assert plan["slots"] == 4
    assert json.loads(hposvc("ls", "-o", "json").out) == []


def test_money_is_that_of_gpu_hours(hposvc, sweep):
    arguments = ("--seconds-per-step", 60, "--set", "resources.gpus_per_worker=2")
    price = ("--set", "price.gpu_hour=2.5", "--set", "price.currency=EUR")
    answer = hposvc("plan", sweep, *arguments, *price, "-o", "json")
    assert answer.code == 0
    plan = answer.data
    assert plan["money"]["expected"] == pytest.approx(2.5 * plan["gpu_hours"]["expected"])
    assert plan["currency"] == "EUR"
    answer = hposvc("plan", sweep, *arguments)
    assert "the price of a GPU-hour: --set price.gpu_hour=P" in answer.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pilot", "--seconds-per-step", 1), "--pilot: is given with --seconds-per-step"),
        (("--gpu-memory", "tiny"), "--gpu-memory"),
        (("--set", "trials.max=0"), "trials.max"),
    ],
)
def test_wrong_usage_is_refused(hposvc, sweep, arguments, message):
    answer = hposvc("plan", sweep, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


HOURS = Estimate(2.6, 1.88, 3.42)
MADE = Forecast(
    trials=Estimate(12, 12, 12),
    rungs=(
        ForecastRung(1, Estimate(11.6, 10, 12)),
        ForecastRung(9, Estimate(4, 4, 4)),
    ),
    steps=Estimate(60, 40, 80),
    failed=Estimate(0.4, 0, 1),
    rank_hours=HOURS,
    gpu_hours=HOURS,
    cpu_hours=HOURS,
    wall_s=Estimate(3600, 1800, 7200),
    disk=Estimate(3e6, 2e6, 4e6),
    slots=4,
    sweeps=60,
)
SEEN = Evidence("earlier", ("before",), (30.0, 31.0, 32.0), trials=3)


def text_of(**changes):
    fields = {
        "spec": make_spec(
            scheduler="asha",
            resources={"gpus_per_worker": 1},
            price={"gpu_hour": 2.0, "currency": "EUR"},
        ),
        "forecast": MADE,
        "evidence": SEEN,
        "notes": ("the code has changed since before",),
        "unknown": ("the price of a GPU-hour: --set price.gpu_hour=P",),
        "memory": None,
        "checkpoint": 1_000_000,
        "savings": (Saving("eta 4 in place of 3", {"scheduler.eta": 4}, 0.8, 0.75, 1.01),),
    }
    stream = io.StringIO()
    Console(file=stream, width=120).print(*describe(Plan(**{**fields, **changes})), sep="\n")
    return stream.getvalue()


def test_the_first_sentence_says_what_it_costs():
    first = (
        "12 trials will take 2.6 (1.88 to 3.42) GPU-hours, which cost 5.20 (3.76 to 6.84) EUR, "
        "and 1h (30m to 2h) with 4 at once."
    )
    assert " ".join(text_of().split()).startswith(first)


def test_details_follow():
    text = text_of()
    assert "3 MB (2 MB to 4 MB); 1 MB each" in text
    assert "the price of a GPU-hour: --set price.gpu_hour=P" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith(" eta 4")]
    assert row[-3:] == ["-20%", "-25%", "="]
    assert "11.6" not in text  # ten or more are whole
    assert "10 to 12" in text
