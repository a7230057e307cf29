"""Every chart of every sweep: strict JSON as documented, and an SVG that says what it shows."""

import base64
import gzip
import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from charted_sweeps import ODD, ORDINARY

from hposvc.analysis.comparison import SweepRun, compare
from hposvc.reporting.charts import (
    DRAWN,
    KINDS,
    NARROW,
    PHONE,
    VIEWS,
    charts,
    comparison,
    draw,
    draw_for_screens,
)
from hposvc.reporting.svg import SIZE, text_width
from hposvc.spec.metrics import Metric

PAGE = (Path(__file__).parents[4] / "docs" / "advanced" / "charts.md").read_text()
LEAVES = {"params"}  # objects whose keys are names of the sweep itself


@pytest.mark.parametrize("name", [*ORDINARY, *ODD])
def test_each_chart_is_strict_json_and_a_picture(history_of, name):
    for chart in charts(history_of(name)):
        json.dumps(asdict(chart), allow_nan=False)
        svg = draw(chart)
        root = ET.fromstring(svg)
        assert root.get("aria-label")
        assert not re.search(r'[" ,LMH-](nan|inf)\b', svg), chart.kind
        assert not root.findall(".//{*}style")  # the page's CSP
        assert "style=" not in svg
        assert 20 < len(chart.message) < 600
        assert chart.message.endswith(".")
        _, _, width, height = map(float, root.get("viewBox").split())
        for element in root.findall("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(element.get("x")) <= width, (chart.kind, element.text)
            assert 0 <= float(element.get("y")) <= height, (chart.kind, element.text)


@pytest.mark.parametrize("name", [*ORDINARY, *ODD])
def test_all_charts_of_a_sweep_are_equally_wide(history_of, name):
    pictures = [draw(chart) for chart in charts(history_of(name))]
    assert {re.search(r'viewBox="0 0 (\S+)', picture)[1] for picture in pictures} <= {"920"}


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("name", ["asha", "pbt"])
def test_a_phone_has_a_narrow_picture_with_all_texts_inside(history_of, name, kind):
    chart = KINDS[kind].build(history_of(name))
    root = ET.fromstring(DRAWN[kind].draw(chart.data, width=PHONE))
    assert root.get("viewBox").startswith("0 0 340 ")
    boxes = [text_box(text) for text in root.findall("{http://www.w3.org/2000/svg}text")]
    assert all(left >= -2 and right <= PHONE + 2 for left, right, _, _ in boxes)
    for (a_left, a_right, a_y, a), (b_left, b_right, b_y, b) in itertools.combinations(boxes, 2):
        apart = a_right <= b_left + 2 or b_right <= a_left + 2 or abs(a_y - b_y) >= 9
        assert apart, (a, b)


def text_box(text: ET.Element) -> tuple[float, float, float, str]:
    """Return a text's left and right end, its base line, and what it says."""
    x, width = float(text.get("x")), text_width(text.text, float(text.get("font-size", SIZE)))
    left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor", "start")]
    return left, left + width, float(text.get("y")), text.text


@pytest.mark.parametrize("kind", VIEWS)
def test_each_chart_of_many_views_has_different_ones(history_of, kind):
    html = draw_for_screens(KINDS[kind].build(history_of("many")))
    packed = re.search(r"<script[^>]*>(.*)</script>", html, re.S)
    if packed is None:
        assert len(set(VIEWS[kind](KINDS[kind].build(history_of("many")).data).values())) == 1
        return
    views = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert views[0][1] == ""  # it stands there
    pictures = [svg for _, svg in views[1:]]
    assert len(set(pictures)) == len(pictures)
    assert not any(svg in html for svg in pictures)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_documents_each_key_and_no_other(history_of, kind):
    built = (KINDS[kind].build(history_of(name)) for name in (*ORDINARY, "running"))
    keys = {key for chart in built if chart is not None for key in keys_of(chart.data)}
    parents = {key.rpartition(".")[0].removesuffix("[]") for key in keys}
    leaves = keys - parents  # an object may be null, a list empty
    assert leaves - {*of_many_kinds()} <= {*documented(kind)} <= leaves


def test_the_page_documents_each_key_of_a_comparison():
    runs = [
        SweepRun(f"{group}-{seed}", group, "task", seed, [1.0, 2.0], [3.0, seed], 4.0)
        for group in "ab"
        for seed in range(3)
    ]
    metric = Metric("loss", "minimize")
    chart = comparison.build(compare(runs), metric, "hours", "GPU-hours", "Equal.")
    keys = {*keys_of(chart.data)}
    assert keys - {*of_many_kinds()} <= {*documented("comparison")} <= keys


def keys_of(data: object, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of JSON data; `[]` stands for the entries of a list of objects."""
    if isinstance(data, dict) and prefix.rpartition(".")[2] not in LEAVES:
        for key, value in data.items():
            yield from keys_of(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        for entry in data:
            yield from keys_of(entry, f"{prefix}[]")
    else:
        yield prefix


def documented(kind: str) -> list[str]:
    """Return the keys in the first column of a kind's table."""
    section = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section is not None, f"docs/advanced/charts.md has no section {kind}"
    return first_column(section[1])


def of_many_kinds() -> list[str]:
    """Return the keys of the table above all kinds."""
    return first_column(PAGE[: PAGE.index("\n## ")])


def first_column(text: str) -> list[str]:
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.M)
    return [key for row in rows for short in re.findall(r"`([^`]+)`", row) for key in keys(short)]


def keys(short: str) -> list[str]:
    """Return the keys that `x.{a,b}` stands for."""
    choices = [part.split(",") for part in re.split(r"[{}]", short)]
    return ["".join(parts) for parts in itertools.product(*choices)]
