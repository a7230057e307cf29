"""Draws docs/schedulers/*.svg: what each scheduler did with the same learning curves.

`python docs/pictures.py [NAME ...] [--png FOLDER]` runs a simulated sweep for each picture, and
draws it from the sweep's journal. Grey: what was given up, a cross where. Blue: what came to the
end. Red: the best of it.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from story import Point, Story, Trial, read, steps_and_losses

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Event
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import registry

FOLDER = Path(__file__).parent / "schedulers"
FIRST, LAST = 3, 81  # epochs: the first rung, the end
GREY, DARK, BLUE, RED, LIGHT = "#b9bdc4", "#5b6270", "#2f7fb5", "#d1402f", "#e6e8ec"
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
    "path.simplify": False,
}


def curve(params, step):
    """A loss that falls the faster, and stays the higher, the larger the learning rate is."""
    rate = math.log10(params["lr"])
    floor = 0.08 + (0.10 if rate > -1.8 else 0.05) * (rate + 1.8) ** 2
    floor += 0.5 * abs(params["dropout"] - 0.3)
    pace = 10 ** (0.5 * rate - 0.1)
    noise = np.random.default_rng([int(params["dropout"] * 1e9), step]).normal(0, 0.015)
    loss = floor + (1 - floor) * math.exp(-((pace * step) ** 0.7))
    return {"loss": loss * (1 + noise)}, 1.0 + params["dropout"] / 4


@dataclass(frozen=True)
class Picture:
    """A sweep, and how it is drawn."""

    title: str
    scheduler: dict[str, object]
    trials: int = 30
    parallel: int = 4
    draw: "Callable[[Axes, Story], None]" = field(default=lambda axes, story: None)  # besides
    logarithmic: bool = False  # the axis of steps
    panels: bool = False  # one for each length of a trial's first order


def run(picture: Picture) -> Story:
    """The sweep, as its journal has it."""
    spec = specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {
                "lr": {"min": 1e-4, "max": 1.0, "log": True},
                "dropout": {"min": 0.0, "max": 0.6},
            },
            "fidelity": {"min": FIRST, "max": LAST, "unit": "epoch"},
            "search": "random",
            "scheduler": picture.scheduler,
            "trials": {"max": picture.trials, "parallel": picture.parallel},
            "engine": {"type": "simulate", "curve": "pictures:curve"},
            "seed": 4,
        }
    )
    return read(simulate(spec), LAST)


def simulate(spec: specs.SweepSpec) -> list[Event]:
    """Run a simulated sweep, and return its events; nobody is told of it, MLflow included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = Journal(Store(f"sqlite:///{folder / 'journal.db'}"))
        Runner(
            name,
            Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
            Simulation(Setting(name, spec, folder, folder)),
            SyncProposer(spec, registry.build(registry.SEARCHERS, spec.search)),
            journal,
            Lease(journal.store, name),
        ).run("pictures:1")
        events = [event for _, event in journal.read(name)]
        journal.store.close()
    return events


def draw(picture: Picture, story: Story) -> Figure:
    """The figure of a sweep."""
    lengths = sorted({trial.until for trial in story.trials.values()}) if picture.panels else [0]
    figure = Figure(figsize=(8, 4), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0, 1, 0.88))
    row = figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
    for axes, length in zip(row, lengths, strict=True):
        members = [trial for trial in story.trials.values() if length in (0, trial.until)]
        _frame(axes, story, picture, members)
        _curves(axes, story, members)
        picture.draw(axes, story)
        if picture.panels:
            text = f"{len(members)} trials from epoch {length}"
            axes.set_title(text, size=8.5, color=DARK)
    row[0].set_ylabel("validation loss")
    figure.supxlabel("epoch", size=10, color=DARK)
    figure.suptitle(picture.title, x=0.008, y=0.985, ha="left", weight="bold", size=11)
    whole = len(story.trials) * LAST
    text = f"{len(story.trials)} trials, {len(story.finished)} to the end; {story.spent:,} of "
    text += f"{whole:,} epochs; best loss {story.best.end[1]:.3f}"
    figure.text(0.008, 0.885, text, size=9.5, color=DARK)
    marks = [
        Line2D([], [], color=GREY, marker="x", mec=DARK, ms=5, label="given up"),
        Line2D([], [], color=BLUE, marker="o", ms=3.5, label="to the end"),
        Line2D([], [], color=RED, marker="o", ms=5, lw=2.2, label="the best"),
    ]
    style = {"frameon": False, "fontsize": 9.5, "labelcolor": DARK, "ncols": 3}
    figure.legend(handles=marks, loc="upper right", bbox_to_anchor=(1, 0.945), **style)
    return figure


def _frame(axes: Axes, story: Story, picture: Picture, members: Sequence[Trial]) -> None:
    """The axes, and the rungs as light lines."""
    rungs = sorted(story.rungs) if len(story.rungs) <= 8 else []
    if picture.panels:
        rungs = [step for step in rungs if step >= members[0].until]
    axes.vlines(rungs, 0, 1, color=LIGHT, lw=5, transform=axes.get_xaxis_transform(), zorder=0)
    if picture.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    ticks = sorted({1, *(rungs or ([] if picture.panels else range(20, LAST - 9, 20))), LAST})
    axes.set_xticks(ticks, [str(step) for step in ticks])
    axes.set_xlim(
        0.95 if picture.logarithmic else 0, LAST * (1.09 if picture.logarithmic else 1.02)
    )
    axes.set_yscale("log")
    axes.set_ylim(0.095, 1.03)
    axes.set_yticks([0.1, 0.2, 0.5, 1], ["0.1", "0.2", "0.5", "1"])
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())


def _curves(axes: Axes, story: Story, members: Sequence[Trial]) -> None:
    """All curves: what was given up below, what came to the end above, the best on top."""
    best = story.best
    for trial in members:
        for piece in trial.pieces:
            alive = [point for point in piece.line if point[0] <= piece.lives_until]
            if len(alive) < len(piece.line):
                axes.plot(*steps_and_losses(piece.line), color=GREY, lw=0.9, zorder=1)
            axes.plot(*steps_and_losses(alive), color=BLUE, lw=1.1, zorder=2)
            if piece.origin is not None:
                _exploit(axes, trial, piece.line, piece.origin.left)
    waits = [point for trial in members for point in trial.pauses]
    axes.scatter(*steps_and_losses(waits), s=16, color="white", edgecolor=BLUE, lw=1.1, zorder=4)
    ends = [trial.end for trial in members if trial in story.cut]
    axes.scatter(*steps_and_losses(ends), marker="x", s=22, lw=1.1, color=DARK, zorder=4)
    done = [trial for trial in members if trial not in story.cut]
    axes.scatter(*steps_and_losses([t.end for t in done]), s=12, color=BLUE, zorder=4)
    if best in members:
        for points in story.lineage(best):
            axes.plot(*steps_and_losses(points), color=RED, lw=2.2, zorder=3)
        axes.scatter(*best.end, s=34, color=RED, zorder=5)


def _exploit(axes: Axes, trial: Trial, line: Sequence[Point], left: Point) -> None:
    """The end of a member's own weights, and an arrow along which it takes over the donor's."""
    axes.scatter(*left, marker="x", s=22, lw=1.1, color=DARK, zorder=4)
    arrow = {"arrowstyle": "-|>", "color": DARK, "lw": 0.8, "shrinkA": 0, "shrinkB": 3}
    axes.annotate("", xy=left, xytext=line[0], arrowprops=arrow, zorder=4)


def _median_line(axes: Axes, story: Story) -> None:
    """The median of the mean losses so far, once every trial is over."""
    steps = range(1, LAST)
    means = [
        median(
            sum(loss for _, loss in trial.points[:step]) / step
            for trial in story.trials.values()
            if len(trial.points) >= step
        )
        for step in steps
    ]
    axes.plot(steps, means, color="black", lw=1.4, ls=(0, (4, 2)), zorder=6)
    box = {"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none"}
    place = (44, means[43])
    axes.annotate("median of the means so far", place, size=9.5, va="center", bbox=box, zorder=7)


PLATEAU = {"patience": 10, "delta": 0.005}


def _patience(axes: Axes, story: Story) -> None:
    """From a trial's last gain to its stop: the steps of patience."""
    for trial in story.cut:
        low = (0, math.inf)
        for step, loss in trial.points:
            if loss < low[1] - PLATEAU["delta"]:
                low = (step, loss)
        axes.plot([low[0], trial.end[0]], [low[1]] * 2, color=RED, lw=0.8, alpha=0.6, zorder=3)


ETA = {"eta": 3}
PBT = {"interval": 12, "quantile": 0.2, "mutate": {"lr": {}, "dropout": {}}}
PICTURES = {
    "fifo": Picture("fifo: every trial runs to its end", {"type": "fifo"}),
    "asha-stop": Picture(
        "asha, mode stop: whoever reaches a rung below the best third so far is stopped",
        {"type": "asha", "mode": "stop", **ETA},
        logarithmic=True,
    ),
    "asha-promote": Picture(
        "asha, mode promote: all wait at the rungs; the best third goes on as soon as it is known",
        {"type": "asha", "mode": "promote", **ETA},
        logarithmic=True,
    ),
    "hyperband": Picture(
        "hyperband: brackets from many short trials to few long ones; each rung is waited for",
        {"type": "hyperband", **ETA},
        trials=49,
        logarithmic=True,
        panels=True,
    ),
    "pbt": Picture(
        "pbt: weak members take over the weights of strong ones, and other values",
        {"type": "pbt", **PBT},
        trials=12,
        parallel=12,
    ),
    "median": Picture(
        "median: whoever's best is worse than the median of the means before is stopped",
        {"type": "median"},
        draw=_median_line,
    ),
    "plateau": Picture(
        f"fifo with plateau: {PLATEAU['patience']} epochs without a gain, and a trial is stopped",
        {"type": "fifo", "plateau": PLATEAU},
        draw=_patience,
    ),
}


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="which; none: all")
    parser.add_argument("--png", type=Path, help="a folder for a PNG of each too")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the SVG files go")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    mpl.rcParams.update(STYLE)
    for name in arguments.names or PICTURES:
        picture = PICTURES[name]
        figure = draw(picture, run(picture))
        figure.savefig(arguments.folder / f"{name}.svg", metadata={"Date": None})
        if arguments.png:
            figure.savefig(arguments.png / f"{name}.png", dpi=130)


if __name__ == "__main__":
    main()
