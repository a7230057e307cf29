"""Attainment over evaluations by suite, as iohinspector computes and draws it.

It is the empirical cumulative distribution over runs and over all gaps between the easiest and the
hardest target, in the logarithm: the limit of the tables' share with ever more targets.

Source: López-Ibáñez et al., Using the Empirical Attainment Function for Analyzing Single-objective
Black-box Optimization Algorithms, IEEE Transactions on Evolutionary Computation (2025).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iohinspector
import matplotlib.pyplot as plt
import numpy as np
import polars
from matplotlib.lines import Line2D
from peers.roster import OURS
from runs import Run

from suites.attainment import Standing
from suites.catalogue import SUITES, Key

COLUMNS = 2


def draw(found: Sequence[tuple[Key, Run]], at: int, path: Path) -> None:
    """Draw one panel for each suite, of the problems that all its methods have to `at`.

    Ours are drawn thick, `gp` in black.
    """
    suites = dict.fromkeys(key.suite for key, _ in found)
    peers = sorted({run.method for _, run in found} - {"gp"})
    colours = {"gp": "black", **dict(zip(peers, plt.get_cmap("tab10").colors, strict=False))}
    columns = min(len(suites), COLUMNS)
    rows = math.ceil(len(suites) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5 * columns, 4 * rows), squeeze=False, layout="constrained"
    )
    for ax in axes.flat[len(suites) :]:
        ax.axis("off")
    for suite, ax in zip(suites, axes.flat, strict=False):
        standing = Standing.of(found, suite, at)
        for method, points in _attained(standing).groupby("algorithm_name"):
            width = 2.5 if method in OURS else 1.2
            ax.plot(points["evaluations"], points["eaf"], color=colours[method], linewidth=width)
        ax.set_title(f"{suite}, {len(standing.common(standing.gaps))} problems")
        ax.set_xlabel("evaluations")
        ax.set_ylabel("share of gaps attained")
    lines = [Line2D([], [], color=colour, label=method) for method, colour in colours.items()]
    figure.legend(handles=lines, loc="outside right upper")
    figure.savefig(path, dpi=80)


def _attained(standing: Standing) -> Any:
    """Return a data frame of iohinspector: for each method and evaluation, the attainment `eaf`.

    Its `plot_ecdf` fails where it is given axes (0.0.8), so lines are drawn here.
    """
    return iohinspector.metrics.get_data_ecdf(
        _trajectories(standing),
        f_min=10.0 ** SUITES[standing.suite].lowest,
        f_max=10.0 ** SUITES[standing.suite].highest,
        eval_values=list(range(1, standing.at + 1)),
        turbo=True,
    )


def _trajectories(standing: Standing) -> polars.DataFrame:
    """Return a row for each evaluation, in the columns that iohinspector reads.

    Others than free variables have to be numbers: it takes their mean, too.
    """
    keys = standing.common(standing.gaps)
    hardest, easiest = 10.0 ** SUITES[standing.suite].lowest, 10.0 ** SUITES[standing.suite].highest
    rows = [
        (place, method, count + 1, float(np.clip(gap, hardest, easiest)))
        for place, (method, key) in enumerate((m, k) for m in standing.gaps for k in keys)
        for count, gap in enumerate(standing.gaps[method][key])
    ]
    names = ["data_id", "algorithm_name", "evaluations", "raw_y"]
    return polars.DataFrame(rows, schema=names, orient="row")
