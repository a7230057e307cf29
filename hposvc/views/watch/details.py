"""Details of the selected trial in `watch`: its curve, decisions, configuration and log."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.analysis.audit.entry import Line, merge_checkpoint_lines
from hposvc.state.finalists import seeds_text
from hposvc.state.summary import rung_steps, trial_values
from hposvc.state.sweep import SweepState
from hposvc.text import duration, number
from hposvc.views.console import make_grid, plain_log
from hposvc.views.dashboard import why_over
from hposvc.views.formatting import scalar
from hposvc.views.watch.plot import plot

VIEWS = ("curve", "decisions", "configuration", "log")
COLOURS = {
    **dict.fromkeys(("proposed", "driven"), "bold"),
    **dict.fromkeys(("continued", "ordered", "finished"), "green"),
    **dict.fromkeys(("exploited", "changed", "copied", "asked"), "cyan"),
    **dict.fromkeys(("paused", "parked", "placed", "saved", "removed"), "bright_black"),
    **dict.fromkeys(("stopped", "killed", "closed", "lost"), "yellow"),
    "failed": "red",
}


def curve(state: SweepState, name: str, width: int, height: int) -> RenderableType:
    """Return a trial's curve of the first metric, with its rungs on the axis."""
    trial = state.trials[name]
    marks = [
        step for step in rung_steps(state.spec) if not trial.curve or step >= trial.curve[0][0]
    ]
    last = state.spec.last_step
    marks += [last] if last is not None and last not in marks else []
    lines = plot(trial.curve, width, height - 1, marks)
    if not lines:
        return Text(
            f"{name} has no {trial.metric.name} yet"
            if not trial.curve
            else f"{name} has no finite {trial.metric.name}"
        )
    head = f"{trial.metric.name} {number(trial.curve[-1][1])} at {state.spec.unit} {trial.step}"
    ends = f", {why_over(trial)}" if trial.over else ""
    return Group(
        Text(head + ends, no_wrap=True, overflow="ellipsis"), *map(_with_dim_gutter, lines)
    )


def decisions(lines: Sequence[Line] | None, unit: str) -> RenderableType:
    """Return the audit of a trial, the newest line first; None: it is being read."""
    if lines is None:
        return Text("reading the journal …", "bright_black")
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    start = lines[0].time if lines else 0.0
    for line in reversed([*merge_checkpoint_lines(lines)]):
        step = "" if line.step is None else f"{unit} {line.step}"
        when = duration(line.time - start)
        table.add_row(when, step, Text(line.what, COLOURS.get(line.what, "")), Text(line.why))
    return table


def configuration(state: SweepState, name: str) -> RenderableType:
    """Return a trial's parameters, the metrics of its last report, and what it cost."""
    trial = state.trials[name]
    grid = make_grid()
    for parameter, value in trial.reported_params.items():
        grid.add_row(parameter, Text(scalar(value)))
    for metric, figure in trial.metrics.items():
        grid.add_row(metric, number(figure))
    if text := seeds_text(trial):
        own = ", ".join("/".join(map(number, run.own_values)) for run in trial.runs)
        grid.add_row("seeds", f"{trial_values(trial).removesuffix(text)}{text}: {own}")
    grid.add_row("time", duration(trial.seconds_at(state.now)))
    if name == state.replicates.baseline_trial:
        grid.add_row("baseline", "its replicates measure the noise of the metric")
    if trial.uses:
        grid.add_row("device", Text(", ".join(trial.uses)))
    if trial.node:
        grid.add_row("node", Text(trial.node))
    if trial.attempts > 1:
        grid.add_row("attempts", str(trial.attempts))
    if trial.parent:
        grid.add_row("copied", trial.parent)
    return grid


def log(text: str | None, lines: int) -> RenderableType:
    """Return the end of a trial's log; None: it is being read."""
    if text is None:
        return Text("reading the log …", "bright_black")
    if not text.strip():
        return Text("it printed nothing so far", "bright_black")
    return Text("\n".join(plain_log(text).splitlines()[-lines:]), overflow="fold")


def _with_dim_gutter(line: str) -> Text:
    """Return a line of a plot, with its label and axis in another colour than its dots."""
    end = max(line.find("┤"), line.find("└")) + 1
    text = Text(line)
    text.stylize("bright_black", 0, end)
    return text
