"""A plan as text."""

import io

from rich.console import Console
from simulated_sweeps import make_spec

from hposvc.analysis.forecast.evidence import Evidence
from hposvc.analysis.forecast.forecast import Forecast, ForecastRung, Saving
from hposvc.analysis.forecast.interval import ForecastInterval
from hposvc.analysis.forecast.plan import Plan
from hposvc.views import plan as views

HOURS = ForecastInterval(2.6, 1.88, 3.42)
MADE = Forecast(
    trials=ForecastInterval(12, 12, 12),
    rungs=(
        ForecastRung(1, ForecastInterval(11.6, 10, 12)),
        ForecastRung(9, ForecastInterval(4, 4, 4)),
    ),
    steps=ForecastInterval(60, 40, 80),
    failed=ForecastInterval(0.4, 0, 1),
    rank_hours=HOURS,
    gpu_hours=HOURS,
    cpu_hours=HOURS,
    wall_s=ForecastInterval(3600, 1800, 7200),
    disk=ForecastInterval(3e6, 2e6, 4e6),
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
    Console(file=stream, width=120).print(*views.plan(Plan(**{**fields, **changes})), sep="\n")
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
