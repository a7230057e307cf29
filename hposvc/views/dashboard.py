"""The dashboard of a sweep: progress, the best so far, running trials. `live` redraws it.

Drawing takes the same time for ten trials as for ten thousand: it reads only the running trials
and the last ended ones, and eight points of a curve.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hposvc.estimate import Estimate
from hposvc.events import DriverState, error_line
from hposvc.journal.waiting import DRIVER, SweepWait
from hposvc.state import summary
from hposvc.state.doubts import doubts
from hposvc.state.finalists import seeds_text
from hposvc.state.remaining import remaining
from hposvc.state.summary import (
    INTERRUPTED,
    counted,
    describe_fallbacks,
    learned_from,
    phase,
    rung_steps,
    trial_values,
    unsearched,
    untrained,
)
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER, TrialPhase, TrialState
from hposvc.text import count, duration, listed, number
from hposvc.views.disk_full import disk_notes
from hposvc.views.formatting import (
    WIDTH,
    at_step,
    evenly_spaced,
    rough,
    scalar,
    sparkline,
    used_of,
    why_ended,
)
from hposvc.views.waits import describe_waits
from searchers import Constant

TRIALS: dict[TrialPhase, str] = {
    "RUNNING": "cyan",
    "PENDING": "bright_black",
    "PAUSED": "blue",
    "COMPLETED": "green",
    "STOPPED": "bright_black",  # the usual end of a weak trial, no alarm
    "FAILED": "red",
}
COLOURS: dict[str, str] = {str(phase): colour for phase, colour in TRIALS.items()}
COLOURS |= {"QUEUED": "bright_black", "UNREADABLE": "bold red", INTERRUPTED: "yellow"}
BAR = 32  # characters of a progress bar
FRONT = 6  # trials of the front that are shown
ENDED = 3  # ended trials that are shown, the last ones; and trials with running seeds
SERVER = "http://HOST:8900"  # in place of the URL of a server, in an example
LONG_WAIT_S = 2.0  # shortest wait for the first slot that is mentioned


@dataclass(frozen=True)
class Panels:
    """The panel of one sweep."""

    sweep: str
    rows: int = 12  # most running trials shown
    expand: bool = True  # widen to the terminal's width
    tight: bool = False  # leave out empty lines, for a low terminal

    def draw(
        self, state: SweepState, elapsed_s: float, driver: DriverState = "alive"
    ) -> RenderableType:
        """Draw the sweep in its present state.

        Args:
            elapsed_s: how long drivers worked on the sweep, including their wait for slots.
        """
        now = state.now + elapsed_s - state.elapsed_s
        waits = describe_waits(state, now, driver)
        gap = [] if self.tight else [Text()]
        parts = [
            _head(state, elapsed_s, waits),
            _front(state) if state.spec.several else _best(state),
        ]
        running = list(state.trials.running())
        if running:
            parts += [*gap, _running_table(state, running[: self.rows], now)]
        if len(running) > self.rows:
            parts.append(Text(f"… and {len(running) - self.rows} more", style="bright_black"))
        if last_ended(state):
            parts += [*gap, _ended_table(state)]
        return Panel(
            Group(*parts, *gap, _counts(state, driver)),
            title=Text(self.sweep, style="bold"),
            title_align="left",
            subtitle=_phase(state, elapsed_s, driver),
            subtitle_align="right",
            box=box.ROUNDED,
            border_style="bright_black",
            padding=(0, 1) if self.tight else (1, 2),
            expand=self.expand,
        )


def status_view(
    sweep: str,
    state: SweepState,
    driver: DriverState,
    terminal: bool,
    served: bool = False,
    waiting: SweepWait | None = None,
) -> RenderableType:
    """Draw the view of `status`: the panel, then notes on the driver and the disk.

    Args:
        served: a server starts the sweep's driver, once it has one free.
        waiting: what the sweep waits for.
    """
    seconds = elapsed_s(state, time.time()) if driver == "alive" else state.elapsed_s
    if waiting is not None and not state.driven:
        seconds = time.time() - waiting.since
    panel = Panels(sweep, expand=terminal).draw(state, seconds, driver)
    learned = learned_from(state)
    learns = f"learns from {learned}" if learned else ""
    notes = (learns, untrained(sweep, state), *unsearched(state), describe_fallbacks(state))
    lines = [*filter(None, notes), *doubts(state)]
    lines += disk_notes(sweep, state)
    by_agents = state.spec.engine.traits.foreign
    if served and state.state in ("QUEUED", "RUNNING") and driver != "alive":
        waits = f"waiting for {DRIVER}" if waiting is None else waiting.describe()
        lines.append(f"{waits}; the server starts it once fewer than --drivers work")
    elif state.state == "RUNNING" and driver != "alive":
        lines.append(f"not running (interrupted); go on with: hposvc resume {sweep}")
    elif state.state == "QUEUED" and driver != "alive":
        lines.append(f"not running yet; start it with: hposvc resume {sweep}")
    elif waiting is not None:
        lines.append(f"{waiting.describe()}; `hposvc queue` shows who has what")
    elif state.state == "RUNNING" and by_agents and not any(state.trials.running()):
        lines.append(f"waiting for agents; start one by: hposvc agent {sweep} --server {SERVER}")
    return Group(panel, *(Text(line, style="yellow") for line in lines)) if lines else panel


def elapsed_s(state: SweepState, now: float) -> float:
    """Return how many seconds drivers worked on a sweep, up to now if one is running.

    Args:
        now: seconds of the epoch; ignored for a simulation, which has its own clock.
    """
    if state.state != "RUNNING" or state.spec.engine.traits.simulated:
        return state.elapsed_s
    return state.elapsed_s + max(0.0, now - state.now)


def time_left(state: SweepState, elapsed_s: float) -> Estimate | None:
    """Return how many seconds a sweep still takes after so many; None: it can't be known yet."""
    left, since_s = remaining(state), elapsed_s - state.elapsed_s
    return None if left is None else left.map(lambda part: max(0.0, part - since_s))


def searched(state: SweepState) -> list[str]:
    """Return the parameters that are no constants."""
    space = state.spec.space
    return [name for name in space if not isinstance(space[name], Constant)]


def one_line(sweep: str, state: SweepState) -> Text:
    """Describe an ended sweep: its id and state, then the counts of its trials."""
    return Text.assemble(
        (sweep, "bold"), " ", _phase(state, state.elapsed_s), "\n", _counts(state), "\n"
    )


def _phase(state: SweepState, elapsed_s: float, driver: DriverState = "alive") -> Text:
    """Describe state and time, as in `RUNNING · 2m 05s · about 4m 10s left`.

    The time leaves out what came before the first trial (imports, Ray's start, the queue), which
    is named apart if it was long.
    """
    shown, why = phase(state, driver), why_ended(state)
    queued_s = state.queued_s + (elapsed_s - state.elapsed_s) * state.queued
    parts = [
        f" · {duration(elapsed_s - queued_s)}",
        f" (and {duration(queued_s)} until its first trial began)"
        if queued_s >= LONG_WAIT_S
        else "",
    ]
    left = time_left(state, elapsed_s) if shown == "RUNNING" else None
    parts.append(f" · {describe_remaining(left)}" if left else "")
    text = (f"{shown}: {why}" if why else shown, f"bold {COLOURS[shown]}")
    return Text.assemble(text, *parts)


def describe_remaining(left: Estimate | None) -> str:
    """Return how long a sweep still takes, as in `about 4m left (3m to 7m)`; empty: not known."""
    if left is None:
        return ""
    expected, low, high = map(rough, (left.value, left.low, left.high))
    if expected == high:
        return f"about {expected} left" if low == high else f"at most {high} left"
    if low == expected or left.low <= 0:
        return f"about {expected} left (at most {high})"
    return f"about {expected} left ({low} to {high})"


def _head(state: SweepState, elapsed_s: float, waits: Sequence[str]) -> RenderableType:
    """Draw the progress bars, and lines about slots, rungs and what the sweep waits for."""
    grid = Table.grid(padding=(0, 2))
    spec = state.spec
    done = sum(state.trials.counts.get(phase, 0) for phase in OVER)
    if spec.trials.max is not None:
        text = f"{done} of {spec.trials.max} trials"
        grid.add_row("trials", _bar(done, spec.trials.max, state), text)
    for key, (used, limit) in spec.spending(elapsed_s, state.rank_s, state.energy_kwh).items():
        grid.add_row("budget", _bar(used, limit, state), used_of(spec, key, used, limit))
    replicates = state.replicates
    if replicates.total:
        text = f"{replicates.done} of {replicates.total} trainings"
        grid.add_row("finals", _bar(replicates.done, replicates.total, state), text)
    energy = [] if state.energy_kwh is None else summary.energy_used(state)
    lines = [
        ("slots", slots(state)),
        ("rungs", rungs(state)),
        ("seeds", further_seeds(state)),
        ("energy", Text(" · ".join(energy), "bright_black")),
        ("waits", Text(" · ".join(waits), "yellow")),
    ]
    details = Table.grid(padding=(0, 2))
    for name, line in lines:
        if line:
            line.no_wrap, line.overflow = name == "waits", "ellipsis"
            details.add_row(f"{name:<6}", line)
    return Group(grid, details)


def rungs(state: SweepState) -> Text:
    """Describe how many trials reached each rung, as in `9 at 1 · 3 at 3 (2 wait)`.

    Empty if the scheduler has no rungs.
    """
    steps = rung_steps(state.spec)
    if len(steps) < 2:
        return Text()
    counts = [
        sum(count for reached, count in state.trials.trials_by_step.items() if reached >= step)
        for step in steps
    ]
    paused = state.trials.paused_by_step
    notes = [f" ({paused[step]} wait)" if paused[step] else "" for step in steps]
    text = " · ".join(
        f"{count} at {step}{note}" for count, step, note in zip(counts, steps, notes, strict=True)
    )
    return Text(f"{text} {state.spec.unit}", "bright_black")


def further_seeds(state: SweepState) -> Text:
    """Describe the further seeds of the trials, as in `12 further seeds · 2 run (t0003, t0007)`."""
    seeds = [seed for trial in state.replicates.seeded.values() for seed in trial.seeds]
    running = [seed.shown_as for seed in seeds if seed.state == "RUNNING"]
    named = f" · {len(running)} run ({listed(running, ENDED)})" if running else ""
    return Text(f"{count(len(seeds), 'further seed')}{named}" if seeds else "", "bright_black")


def slots(state: SweepState) -> Text:
    """Describe how many slots are busy, as in `3 of 4 busy · 92% so far`; empty: none ever was."""
    tables = (state.trials, state.replicates.trials)
    busy, most = len(state.running()), max(table.peak_orders for table in tables)
    share = utilisation(state)
    if share is None:
        return Text()
    if state.finished:
        return Text(f"{most} at most, {share:.0%} busy")
    return Text.assemble(
        f"{busy} of {max(busy, most)} busy", (f" · {share:.0%} so far", "bright_black")
    )


def utilisation(state: SweepState) -> float | None:
    """Return the share of the time that the slots were busy; None: there were none so far."""
    most = max(table.peak_ranks for table in (state.trials, state.replicates.trials))
    if not most or state.worked_s <= 0:
        return None
    return min(1.0, state.rank_s / most / state.worked_s)


def _bar(completed: float, total: float, state: SweepState) -> ProgressBar:
    colour = COLOURS[state.state]
    shown = min(completed, total)
    return ProgressBar(total, shown, BAR, complete_style=colour, finished_style=colour)


def _best(state: SweepState) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    if state.best is None:
        grid.add_row("best  ", _reason_for_no_best(state))
        return grid
    trial = state.trials[state.best]
    step = trial.step if trial.selected is None else trial.selected[0]
    line = Text.assemble(
        f"{trial.metric.name} ",
        (number(trial.value), "bold green"),
        seeds_text(trial),
        (f"  {trial.id}", "bright_black"),
        baseline_mark(trial.id == state.replicates.baseline_trial),
        (f" at {state.spec.unit} {step}", "bright_black"),
    )
    grid.add_row("best  ", line)
    grid.add_row("", _configuration(trial, searched(state)))
    return grid


def _front(state: SweepState) -> RenderableType:
    """Draw the Pareto front; of a large front, trials evenly spread over it."""
    grid = Table.grid(padding=(0, 2))
    trials = sorted((state.trials[name] for name in state.front), key=lambda trial: trial.losses)
    names = [metric.name for metric in state.spec.objectives]
    if not trials:
        grid.add_row("front ", _reason_for_no_best(state))
        return grid
    grid.add_row("front ", *(Text(name, style="bright_black") for name in names))
    for trial in [trials[place] for place in evenly_spaced(len(trials), FRONT)]:
        values = [Text(number(value), style="bold green") for value in trial.values]
        line = _configuration(trial, searched(state))
        grid.add_row("", *values, Text(trial.id, style="bright_black"), line)
    if len(trials) > FRONT:
        grid.add_row("", Text(f"of {len(trials)}", style="bright_black"))
    return grid


def _reason_for_no_best(state: SweepState) -> Text:
    """Say why there is no best trial yet."""
    metrics = " and ".join(metric.name for metric in state.spec.objectives)
    beyond_limits = bool(state.spec.limits) and any(trial.values for trial in state.trials.values())
    text = "no trial keeps the limits yet" if beyond_limits else f"no {metrics} yet"
    return Text(text, style="bright_black")


def _running_table(state: SweepState, trials: Sequence[TrialState], now: float) -> RenderableType:
    table = Table(box=None, header_style="bright_black", padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("trial", no_wrap=True)
    table.add_column(state.spec.unit, justify="right", no_wrap=True)
    for metric in state.spec.objectives:
        table.add_column(metric.name, justify="right", no_wrap=True)
    table.add_column("trend", no_wrap=True, width=WIDTH)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("configuration", ratio=1)  # the only column that may shrink
    names, front = varying(state, trials), set(state.front)
    for trial in trials:
        table.add_row(*_cells(state, trial, names, trial.id in front, now))
    return table


def last_ended(state: SweepState) -> list[TrialState]:
    """Return the trials that ended last, newest first, without those that were continued."""
    names = dict.fromkeys(reversed(state.trials.ended))
    return [state.trials[name] for name in names if state.trials[name].over]


def _ended_table(state: SweepState) -> RenderableType:
    """Draw the table of the trials that ended last, newest first."""
    table = Table(box=None, header_style="bright_black", padding=(0, 3, 0, 0), pad_edge=False)
    for name in ("ended last", state.spec.unit, *(metric.name for metric in state.spec.objectives)):
        table.add_column(name, no_wrap=True, justify="left" if name == "ended last" else "right")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("why", ratio=1)  # the only column that may shrink
    for trial in last_ended(state)[:ENDED]:
        missing = [None] * (len(trial.objectives) - len(trial.values))
        values = (number(value) for value in [*trial.values, *missing])
        table.add_row(
            Text.assemble(trial.id, baseline_mark(trial.id == state.replicates.baseline_trial)),
            str(trial.step),
            *values,
            duration(trial.seconds),
            CutLine(why_over(trial), COLOURS[trial.state]),
        )
    return table


def baseline_mark(is_baseline: bool) -> tuple[str, str]:
    """Return the mark behind the name of a trial, with its style; empty: it is no baseline."""
    return (" baseline" if is_baseline else "", "magenta")


def phase_text(name: str) -> Text:
    """Return the phase of a sweep or trial in its colour."""
    return Text(name, COLOURS.get(name, ""))


def why_over(trial: TrialState) -> str:
    """Return why a trial ended, as in `stopped (rung): rank 4 of 5`, or `failed (oom): ...`."""
    word, message = trial.end_reason
    reason = f"{trial.state.lower()} ({word})" if word else trial.state.lower()
    detail = error_line(message) if trial.state != "COMPLETED" or trial.excluded else ""
    return f"{reason}: {detail}" if detail else reason


def _cells(
    state: SweepState, trial: TrialState, names: Sequence[str], is_best: bool, now: float
) -> Iterator[RenderableType]:
    yield Text.assemble(
        (trial.id, "bold green" if is_best else "bold"),
        baseline_mark(trial.id == state.replicates.baseline_trial),
        (f" ×{trial.attempts}" if trial.attempts > 1 else "", "yellow"),
        (f" ← {trial.parent}" if trial.parent else "", "bright_black"),  # the trial it copied
    )
    yield Text(at_step(trial, state.spec))
    for curve in trial.curves.values():
        value = curve[-1][1] if curve else None
        yield Text(number(value), style="green" if is_best else "")
    yield Text(trend(trial), style="green" if is_best else "cyan")
    yield Text(duration(trial.seconds_at(now)))
    yield _configuration(trial, names)


def varying(state: SweepState, trials: Sequence[TrialState]) -> list[str]:
    """Return the searched parameters, sorted by how many values these trials have, most first."""
    names = searched(state)
    kinds = {name: len({repr(trial.params.get(name)) for trial in trials}) for name in names}
    return sorted(names, key=lambda name: -kinds[name])


def _configuration(trial: TrialState, names: Sequence[str]) -> "Configuration":
    return Configuration(
        [(name, scalar(trial.params[name])) for name in names if name in trial.params]
    )


@dataclass(frozen=True)
class Configuration:
    """A line of as many parameters as fit its width; none is cut in the middle."""

    pairs: Sequence[tuple[str, str]]
    equals: str = " "  # between name and value
    gap: str = "  "  # between two parameters
    cut: list[bool] = field(default_factory=list)  # gets an item if some parameters did not fit

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(1, len(self.pairs)), self._line(len(self.pairs)).cell_len)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = range(len(self.pairs), 0, -1)
        lines = (self._line(count) for count in fitting)
        line = next(
            (candidate for candidate in lines if candidate.cell_len <= options.max_width), Text("…")
        )
        if line.plain.endswith("…"):
            self.cut.append(True)
        line.no_wrap = True
        yield line

    def _line(self, count: int) -> Text:
        """Return the line of the first `count` parameters, ended by … if there are more."""
        line = Text()
        for name, value in self.pairs[:count]:
            line.append(f"{name}{self.equals}", "bright_black").append(f"{value}{self.gap}")
        line.rstrip()
        return line if count == len(self.pairs) else line.append(f"{self.gap}…", "bright_black")


@dataclass(frozen=True)
class CutLine:
    """A text that is cut to its width, however narrow that is."""

    text: str
    style: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(1, Text(self.text).cell_len))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.text, self.style, no_wrap=True, overflow="ellipsis")


def trend(trial: TrialState) -> str:
    """Return the trial's curve of the first metric as a sparkline; falling values fall."""
    return sparkline([trial.curve[place][1] for place in evenly_spaced(len(trial.curve))])


def progress_line(state: SweepState, elapsed_s: float) -> str:
    """Describe a running sweep in a line: trials, best, rungs, time left, and what it waits for."""
    done = sum(state.trials.counts.get(phase, 0) for phase in OVER)
    limit = state.spec.trials.max
    waits = describe_waits(state, state.now + elapsed_s - state.elapsed_s)
    if state.best is not None:
        best = f"best {trial_values(state.trials[state.best])} ({state.best})"
    else:
        best = f"front of {len(state.front)}" if state.front else ""
    rungs_text, slots_text = rungs(state).plain, slots(state).plain
    parts = (
        f"{done} trials" if limit is None else f"{done} of {limit} trials",
        best,
        slots_text and f"slots {slots_text.replace(' · ', ', ')}",
        rungs_text and f"rungs {rungs_text.replace(' · ', ', ')}",
        describe_remaining(time_left(state, elapsed_s)),
        waits and f"waits for {'; '.join(waits)}",
    )
    return " · ".join(part for part in parts if part)


def _counts(state: SweepState, driver: DriverState = "alive") -> Text:
    """Describe how many trials are in each state."""
    counts = {**counted(state, driver), "PENDING": state.trials.counts.get("PENDING", 0)}
    order = ("RUNNING", INTERRUPTED, "PENDING", "PAUSED", "COMPLETED", "STOPPED", "FAILED")
    parts = [
        Text(f"{counts[name]} {name.lower()}", style=COLOURS[name])
        for name in order
        if counts[name]
    ]
    return Text(" · ", style="bright_black").join(parts or [Text("no trials yet")])
