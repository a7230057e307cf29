"""Draws what policies did with a shared cluster: waiting times, shares, idle GPUs."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.lines
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from shared_cluster import Outcome

DARK = "#5b6270"
COLOURS = {
    "ours": "#d1402f",
    "first come": "#8a8f99",
    "Kueue's": "#2f7fb5",
    "Kueue's, elastic": "#7fb8dc",
}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hposvc",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": DARK,
    "axes.labelcolor": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": DARK,
    "ytick.color": DARK,
}
HOUR_S = 3600.0
SPAN_H = 1.0  # over which idle GPUs are averaged


def draw_picture(outcomes: "Sequence[Outcome]", window_s: float, path: Path) -> None:
    """Draw the picture into a file.

    Args:
        window_s: seconds in which sweeps came; shares and idle GPUs are drawn up to half as much
            later.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        figure.get_layout_engine().set(rect=(0, 0, 1, 0.9), wspace=0.06)
        waits, shares, idle = figure.subplots(1, 3)
        _draw_waits(waits, outcomes)
        _draw_shares(shares, outcomes)
        _draw_idle(idle, outcomes)
        for axes in (shares, idle):
            axes.set_xlabel("hours")
            axes.set_xlim(0, 1.5 * window_s / HOUR_S)
            axes.set_ylim(bottom=0)
        handles = [
            mpl.lines.Line2D([], [], color=COLOURS[each.name], lw=2.2, label=each.name)
            for each in outcomes
        ]
        style = {"frameon": False, "fontsize": 10, "labelcolor": DARK, "ncols": 4}
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 1.0), **style)
        kind = {"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 130}
        figure.savefig(path, **kind)


def _draw_waits(axes: Axes, outcomes: "Sequence[Outcome]") -> None:
    """The median and the 90th percentile of the wait, by size of the sweeps."""
    edges = np.quantile([each.sweep.gpu_s for each in outcomes[0].cluster.ended], np.arange(5) / 4)
    for number, each in enumerate(outcomes):
        ended = each.cluster.ended
        waits, sizes = each.waits(ended), np.array([live.sweep.gpu_s for live in ended])
        of_quarter = [waits[(sizes >= low) & (sizes <= high)] for low, high in pairwise(edges)]
        at = np.arange(4) + 0.15 * (number - (len(outcomes) - 1) / 2)
        low, high = (
            np.maximum([np.percentile(part, percent) for part in of_quarter], 0.3)
            for percent in (50, 90)
        )
        axes.vlines(at, low, high, color=COLOURS[each.name], lw=1.6)
        axes.scatter(at, low, s=26, color=COLOURS[each.name], zorder=3)
        axes.scatter(at, high, s=26, marker="_", color=COLOURS[each.name], lw=1.6)
    axes.set_yscale("log")
    axes.set_yticks([1, 10, 60, 600], ["1 min", "10 min", "1 h", "10 h"])
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xticks(range(4), ["smallest", "2nd", "3rd", "largest"])
    axes.set_xlabel("quarter of the sweeps, by GPU-hours")
    axes.set_title("wait for the first slot: median, 90 %", size=10, color=DARK, loc="left")


def _draw_shares(axes: Axes, outcomes: "Sequence[Outcome]") -> None:
    """How far users are from their shares in each hour that is crowded from end to end."""
    for each in outcomes:
        record = each.record
        hours = [hour for hour, crowded in enumerate(record.crowded) if crowded]
        apart = [
            100 * np.abs(record.had_U[hour] - record.due_U[hour]).sum() / record.due_U[hour].sum()
            for hour in hours
        ]
        axes.plot(np.array(hours) + 0.5, apart, color=COLOURS[each.name], lw=1.6)
    axes.set_title("users apart from their weights, %", size=10, color=DARK, loc="left")


def _draw_idle(axes: Axes, outcomes: "Sequence[Outcome]") -> None:
    """GPUs without an order while more are wanted than there are."""
    for each in outcomes:
        times, idle, crowded = (np.array(column) for column in zip(*each.record.idle, strict=True))
        spans = (times / HOUR_S / SPAN_H).astype(int)
        total = each.cluster.room.total
        drawn = [
            (span, 100 * idle[spans == span].mean() / total)
            for span in range(spans.max() + 1)
            if (spans == span).any() and crowded[spans == span].all()
        ]
        if drawn:
            at, share = zip(*drawn, strict=True)
            axes.plot((np.array(at) + 0.5) * SPAN_H, share, color=COLOURS[each.name], lw=1.6)
    axes.set_title("idle GPUs while more are wanted, %", size=10, color=DARK, loc="left")
