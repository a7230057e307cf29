"""A sweep at a glance: progress, the best so far, what runs. The live table is this, redrawn.

Drawing costs the same whether there are ten trials or ten thousand: only running ones are looked
at, and of a curve eight points.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hposvc.lease import DriverState
from hposvc.state import SweepState
from hposvc.trial import OVER, TrialPhase, TrialState
from hposvc.views.room import notes
from hposvc.views.words import WIDTH, duration, number, scalar, sparkline, thinned
from searchers.domains import Constant

TRIALS: dict[TrialPhase, str] = {
    "RUNNING": "cyan",
    "PENDING": "bright_black",
    "PAUSED": "blue",
    "COMPLETED": "green",
    "STOPPED": "yellow",
    "FAILED": "red",
}
COLOURS: dict[str, str] = {str(phase): colour for phase, colour in TRIALS.items()}
COLOURS["QUEUED"] = "bright_black"
BAR = 32  # characters
FRONT = 6  # trials of it


@dataclass(frozen=True)
class Panels:
    """Draws one sweep."""

    sweep: str
    rows: int = 12  # running trials shown at most
    expand: bool = True  # to the width of the terminal

    def draw(self, state: SweepState, elapsed_s: float) -> RenderableType:
        """The sweep as it stands; `elapsed_s` are the seconds that drivers worked on it."""
        parts = [_head(state, elapsed_s), _front(state) if state.spec.several else _best(state)]
        running = list(state.live())
        if running:
            parts += [Text(), _running(state, running[: self.rows])]
        if len(running) > self.rows:
            parts.append(Text(f"… and {len(running) - self.rows} more", style="bright_black"))
        return Panel(
            Group(*parts, Text(), _counts(state)),
            title=Text(self.sweep, style="bold"),
            title_align="left",
            subtitle=_phase(state, elapsed_s),
            subtitle_align="right",
            box=box.ROUNDED,
            border_style="bright_black",
            padding=(1, 2),
            expand=self.expand,
        )


def at_rest(sweep: str, state: SweepState, driver: DriverState, terminal: bool) -> RenderableType:
    """What `status` shows: the panel, and what to know of the driver."""
    seconds = elapsed_s(state, time.time()) if driver == "alive" else state.elapsed_s
    panel = Panels(sweep, expand=terminal).draw(state, seconds)
    lines = notes(sweep, state)
    if not (state.finished or state.full or driver == "alive"):
        how = "died" if driver == "dead" else "let go"
        go_on = f"go on with: hposvc resume {sweep}"
        lines.append(f"nobody drives this sweep, its last driver {how}; {go_on}")
    return Group(panel, *(Text(line, style="yellow") for line in lines)) if lines else panel


def elapsed_s(state: SweepState, now: float) -> float:
    """Seconds that drivers worked on a sweep, one that is at it now included.

    Args:
        now: seconds of the epoch; a simulation has a clock of its own.
    """
    if state.state != "RUNNING" or state.spec.engine.type == "simulate":
        return state.elapsed_s
    return state.elapsed_s + max(0.0, now - state.now)


def searched(state: SweepState) -> list[str]:
    """The parameters that differ from trial to trial."""
    space = state.spec.space
    return [name for name in space if not isinstance(space[name], Constant)]


def in_a_line(sweep: str, state: SweepState) -> Text:
    """A sweep that has ended."""
    return Text.assemble(
        (sweep, "bold"), " ", _phase(state, state.elapsed_s), "\n", _counts(state), "\n"
    )


def _phase(state: SweepState, elapsed_s: float) -> Text:
    why = f" ({state.reason})" if state.reason else ""
    phase = (state.state + why, f"bold {COLOURS[state.state]}")
    return Text.assemble(phase, f" · {duration(elapsed_s)}")


def _head(state: SweepState, elapsed_s: float) -> RenderableType:
    """How far along: by trials, by the wall-clock budget, or by both."""
    grid = Table.grid(padding=(0, 2))
    spec = state.spec
    done = sum(state.counts.get(phase, 0) for phase in OVER)
    if spec.trials.max is not None:
        text = f"{done} of {spec.trials.max} trials"
        grid.add_row("trials", _bar(done, spec.trials.max, state), text)
    if spec.budget.wall_s is not None:
        text = f"{duration(elapsed_s)} of {duration(spec.budget.wall_s)}"
        grid.add_row("budget", _bar(elapsed_s, spec.budget.wall_s, state), text)
    finals = state.finals
    if finals.total:
        text = f"{finals.done} of {finals.total} trainings"
        grid.add_row("finals", _bar(finals.done, finals.total, state), text)
    return grid


def _bar(completed: float, total: float, state: SweepState) -> ProgressBar:
    colour = COLOURS[state.state]
    shown = min(completed, total)
    return ProgressBar(total, shown, BAR, complete_style=colour, finished_style=colour)


def _best(state: SweepState) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    if state.best is None:
        grid.add_row("best  ", _nothing(state))
        return grid
    trial = state.trials[state.best]
    step = trial.step if trial.selected is None else trial.selected[0]
    where = f"  {trial.id} at {_unit(state)} {step}"
    line = Text.assemble(
        f"{trial.metric.name} ", (number(trial.value), "bold green"), (where, "bright_black")
    )
    grid.add_row("best  ", line)
    grid.add_row("", _configuration(trial, searched(state)))
    return grid


def _front(state: SweepState) -> RenderableType:
    """The trials that no other dominates, spread over the front where they are many."""
    grid = Table.grid(padding=(0, 2))
    trials = sorted((state.trials[name] for name in state.front), key=lambda one: one.losses)
    names = [metric.name for metric in state.spec.objectives]
    if not trials:
        grid.add_row("front ", _nothing(state))
        return grid
    grid.add_row("front ", *(Text(name, style="bright_black") for name in names))
    for trial in [trials[place] for place in thinned(len(trials), FRONT)]:
        values = [Text(number(value), style="bold green") for value in trial.values]
        line = _configuration(trial, searched(state))
        grid.add_row("", *values, Text(trial.id, style="bright_black"), line)
    if len(trials) > FRONT:
        grid.add_row("", Text(f"of {len(trials)}", style="bright_black"))
    return grid


def _nothing(state: SweepState) -> Text:
    """Why no trial is the best."""
    what = " and ".join(metric.name for metric in state.spec.objectives)
    beyond = bool(state.spec.limits) and any(trial.values for trial in state.trials.values())
    text = "no trial keeps the limits yet" if beyond else f"no {what} yet"
    return Text(text, style="bright_black")


def _running(state: SweepState, trials: Sequence[TrialState]) -> RenderableType:
    table = Table(box=None, header_style="bright_black", padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("trial", no_wrap=True)
    table.add_column(_unit(state), justify="right", no_wrap=True)
    for metric in state.spec.objectives:
        table.add_column(metric.name, justify="right", no_wrap=True)
    table.add_column("trend", no_wrap=True, width=WIDTH)
    table.add_column("configuration")  # the one that may shrink
    names, front = searched(state), set(state.front)
    for trial in trials:
        table.add_row(*_cells(state, trial, names, trial.id in front))
    return table


def _cells(
    state: SweepState, trial: TrialState, names: Sequence[str], is_best: bool
) -> Iterator[Text]:
    yield Text.assemble(
        (trial.id, "bold green" if is_best else "bold"),
        (f" ×{trial.attempts}" if trial.attempts > 1 else "", "yellow"),
        (f" ← {trial.parent}" if trial.parent else "", "bright_black"),  # whom it copied
    )
    yield Text(f"{trial.step}/{state.spec.last_step}")
    for curve in trial.curves.values():
        value = curve[-1][1] if curve else None
        yield Text(number(value), style="green" if is_best else "")
    yield Text(trend(trial), style="green" if is_best else "cyan")
    yield _configuration(trial, names)


def _configuration(trial: TrialState, names: Sequence[str]) -> Text:
    """The trial's values on a line that ends in … where there is no room for all of them."""
    line = Text(overflow="ellipsis", no_wrap=True)
    for name in names:
        if name in trial.params:
            line.append(f"{name} ", "bright_black").append(f"{scalar(trial.params[name])}  ")
    line.rstrip()
    return line


def trend(trial: TrialState) -> str:
    """The trial's curve, of the first metric, as a sparkline; higher is better."""
    points = [trial.curve[place] for place in thinned(len(trial.curve))]
    return sparkline([trial.metric.loss(value) for _, value in points])


def _counts(state: SweepState) -> Text:
    """How many trials there are of each kind."""
    present = [(phase, state.counts.get(phase, 0)) for phase in TRIALS]
    parts = [
        Text(f"{count} {phase.lower()}", style=COLOURS[phase]) for phase, count in present if count
    ]
    return Text(" · ", style="bright_black").join(parts or [Text("no trials yet")])


def _unit(state: SweepState) -> str:
    return state.spec.fidelity.unit if state.spec.fidelity else "step"
