"""All charts of a sweep, in the order in which a report shows them.

Each kind is a module with `build`, which returns the chart's data or None where it does not apply,
and `draw`, which makes an SVG of the data. A new kind is a module and a line here. On screens a
kind may have further views, and a narrow form for phones.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from hposvc.reporting.chart import Chart, packed
from hposvc.reporting.charts import (
    best,
    comparison,
    contours,
    curves,
    failures,
    front,
    importance,
    lineage,
    parallel,
    savings,
    shares,
    slices,
    timeline,
)
from hposvc.reporting.history import History

PHONE = 340.0  # width of a picture that a phone shows whole

KINDS: Mapping[str, ModuleType] = {
    "best": best,
    "front": front,
    "parallel": parallel,
    "shares": shares,
    "importance": importance,
    "slices": slices,
    "contours": contours,
    "curves": curves,
    "lineage": lineage,
    "savings": savings,
    "timeline": timeline,
    "failures": failures,
}

DRAWN = {**KINDS, "comparison": comparison}  # of several sweeps: reporting/comparison.py builds it
VIEWS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, str]]] = {
    "best": best.views,
    "curves": curves.views,
    "parallel": parallel.views,
}
NARROW = ("best", "curves", "importance")  # kinds whose `draw` takes a width that suits phones


def charts(history: History) -> list[Chart]:
    """Return the charts that apply to a sweep."""
    built = (module.build(history) for module in KINDS.values())
    return [chart for chart in built if chart is not None]


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    drawn: str = DRAWN[chart.kind].draw(chart.data)
    return drawn


def draw_for_screens(chart: Chart) -> str:
    """Return a chart as HTML: its SVG, a narrow one for phones, and its further views as JSON."""
    views = VIEWS[chart.kind](chart.data) if chart.kind in VIEWS else {"": draw(chart)}
    picture = next(iter(views.values()))
    if chart.kind in NARROW:
        narrow = DRAWN[chart.kind].draw(chart.data, width=PHONE)
        picture = f'<div class="wide-only">{picture}</div><div class="narrow-only">{narrow}</div>'
    different = {svg: name for name, svg in reversed([*views.items()])}  # of equal ones the first
    further = [(name, svg) for name, svg in views.items() if different[svg] == name][1:]
    if not further:
        return picture
    return f"{picture}{packed([(next(iter(views)), ''), *further])}"
