"""All charts of a sweep, in the order in which a report shows them.

Each kind is a module with `build`, which returns the chart's data or None where it does not apply,
and `draw`, which makes an SVG of the data. A new kind is a module and a line here.
"""

from collections.abc import Mapping
from types import ModuleType

from hposvc.reporting.chart import Chart
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
    slices,
    timeline,
)
from hposvc.reporting.history import History

PHONE = 340.0  # width of a picture that a phone shows whole

KINDS: Mapping[str, ModuleType] = {
    "best": best,
    "front": front,
    "parallel": parallel,
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


def charts(history: History) -> list[Chart]:
    """Return the charts that apply to a sweep."""
    built = (module.build(history) for module in KINDS.values())
    return [chart for chart in built if chart is not None]


def draw(chart: Chart) -> str:
    """Return a chart as SVG."""
    drawn: str = DRAWN[chart.kind].draw(chart.data)
    return drawn


def draw_for_screens(chart: Chart) -> str:
    """Return a chart as HTML: its SVG, and a narrower one where a phone can show it whole."""
    if chart.kind != "importance":
        return draw(chart)
    narrow = importance.draw(chart.data, PHONE)
    return f'<div class="wide-only">{draw(chart)}</div><div class="narrow-only">{narrow}</div>'
