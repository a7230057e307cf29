import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest

from hposvc.analysis.comparison import SweepRun, compare
from hposvc.reporting.charts import comparison, draw
from hposvc.spec.metrics import Metric

ACCURACY = Metric("accuracy", "maximize")


def of(group, task="t", seeds=3, sign=1.0):
    return [
        SweepRun(
            *(f"{group}-{task}-{seed}", group, task, seed),
            *([1.0, 3.0], [0.5, -0.7 - seed / 100 * sign], 6.0 + seed),
        )
        for seed in range(seeds)
    ]


def built(*runs):
    figures = compare([run for group in runs for run in group])
    return comparison.build(figures, ACCURACY, "hours", "GPU-hours", "a is better than b.")


CHARTS = {
    "repeats": [of("a"), of("b", sign=-1)],
    "single": [of("a", seeds=1), of("b", seeds=1)],
    "tasks": [of("a"), of("a", "u"), of("b"), of("b", "u", sign=-1)],
    "many": [of(f"a group with a long name, number {n}", sign=n) for n in range(9)],
}


@pytest.mark.parametrize("name", CHARTS)
def test_it_is_strict_json_and_a_picture(name):
    chart = built(*CHARTS[name])
    json.dumps(asdict(chart), allow_nan=False)
    svg = draw(chart)
    root = ET.fromstring(svg)
    assert root.get("aria-label")
    assert not re.search(r'[" ,LMH-](nan|inf)\b', svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.findall("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(element.get("x")) <= width
        assert 0 <= float(element.get("y")) <= height


def test_values_have_the_sign_of_the_metric_and_the_interval_its_order():
    data = built(*CHARTS["repeats"]).data
    group = data["groups"][0]
    assert group["value"][-1] == pytest.approx(0.71, abs=1e-3)
    assert group["low"][-1] < group["value"][-1] < group["high"][-1]
    assert data["equal_cost"] == 6.0
    assert data["sweeps"][0]["value"] == [-0.5, 0.7, 0.7]
