"""Draws regret over evaluations, with 95 % intervals: all problems, then each family."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from problems.catalogue import Catalogue, Reference
from runs import Run
from standings import AT, RESAMPLES, Pair, Standing, regret, resampled

TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
FIRST = 5  # evaluations before which all are alike


def draw(
    found: Sequence[Run], catalogue: Catalogue, known: Mapping[str, Reference], path: Path
) -> None:
    """Draw the runs that all methods have made; `gp` is drawn thick and black."""
    longest = max(at for at in AT if Standing.of(found, at, catalogue, known).regrets)
    standing = Standing.of(found, longest, catalogue, known)
    methods = standing.methods
    runs = {(run.method, run.problem, run.seed): run.incumbent for run in found}
    others = [method for method in methods if method != "gp"]
    colours = {"gp": "black", **dict(zip(others, plt.get_cmap("tab10").colors, strict=False))}
    panels: dict[str, list[Pair]] = {"all": standing.common(methods)}
    panels |= {family: standing.common(methods, family) for family in catalogue.families}
    panels = {title: pairs for title, pairs in panels.items() if pairs}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.2 * len(panels) + 1.5, 3.4), squeeze=False, layout="constrained"
    )
    evaluations = np.arange(FIRST, longest + 1)
    for (title, pairs), ax in zip(panels.items(), axes.flat, strict=True):
        picks = _picks(pairs)
        for method in methods:
            regret_PE = np.array(
                [
                    [
                        regret(loss, known[name])
                        for loss in runs[method, name, seed][FIRST - 1 : longest]
                    ]
                    for name, seed in pairs
                ]
            )
            drawn_BE = np.array([regret_PE[pick].mean(axis=0) for pick in picks])
            low_E, high_E = np.quantile(drawn_BE, [0.025, 0.975], axis=0)
            width = 2.5 if method == "gp" else 1.2
            ax.plot(evaluations, regret_PE.mean(axis=0), color=colours[method], linewidth=width)
            ax.fill_between(evaluations, low_E, high_E, color=colours[method], alpha=0.08)
        problems = len({name for name, _ in pairs})
        ax.set_title(f"{title}: {problems} tables, {len(pairs)} runs", fontsize=9)
        ax.set_xlabel("evaluations")
        ax.set_yscale("log")
        shown = ax.get_ylim()
        ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.minorticks_off()
        ax.set_ylim(shown)
        ax.axhline(1.0, color="grey", linewidth=0.6, linestyle=":")
    axes.flat[0].set_ylabel("regret (1: random search's after 60)")
    lines = [plt.Line2D([], [], color=colours[method], label=method) for method in methods]
    figure.legend(handles=lines, loc="outside right center")
    figure.savefig(path, dpi=90)


def _picks(pairs: Sequence[Pair]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [resampled(pairs, rng) for _ in range(RESAMPLES // 10)]
