"""The live view of a running sweep: a panel on a terminal, a table in a notebook, else lines.

All are watchers of the driver's loop and write to stderr. If a view fails, it prints one line and
stays silent from then on; the sweep continues.
"""

import math
import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from hposvc.events import Event, Finished, WarmStarted, error_line
from hposvc.state.driver_clock import DriverClock
from hposvc.state.summary import learned_from, trial_values
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import duration
from hposvc.views.console import plain_log
from hposvc.views.dashboard import Panels, elapsed_s, progress_line
from hposvc.views.formatting import at_step, micro_batch_share, why_ended
from hposvc.views.notebook import NotebookTable, in_notebook
from trainables.contract import under_a_panel

REDRAWS = 4  # per second
FRAME, TIGHT_FRAME = 24, 18  # lines of the panel besides the running trials; without empty ones
LOW = 34  # lines of a terminal below which the panel has no empty ones
SUMMARY_S = 60.0  # between two lines about the whole sweep, without a terminal


class LiveView:
    """A context manager and watcher that shows a sweep on a console inside the block."""

    def __init__(self, sweep: str, console: Console) -> None:
        self.console, self._sweep = console, sweep
        self._shown: LivePanel | NotebookTable | PlainLines
        if in_notebook():
            self._shown = NotebookTable(sweep)
        elif console.is_terminal:
            self._shown = LivePanel(sweep, console)
        else:
            self._shown = PlainLines(console)
        self._broken = False

    def __enter__(self) -> "LiveView":
        self._shown.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Show the events' effect; never raise."""
        if self._broken:
            return
        try:
            if any(isinstance(event, WarmStarted) and event.trials for event in events):
                warm = state.spec.warm_start
                off = " (`warm_start: null` turns that off)" if warm and warm.auto else ""
                line = f"{self._sweep}: learns from {learned_from(state)}{off}"
                self.console.print(line, highlight=False)
            self._shown.on_events(state, events)
        except Exception as error:  # noqa: BLE001 - a view must not end the sweep
            self._broken = True
            self._shown.close()
            self.console.print(f"the live view broke ({error!r}); the sweep goes on")

    def say(self, text: str) -> None:
        """Show what the driver waits for or prepares; an empty text clears it."""
        if not self._broken:
            self._shown.say(text)


class LivePanel:
    """The sweep's panel, redrawn in place."""

    def __init__(self, sweep: str, console: Console) -> None:
        tight = console.height < LOW
        frame = TIGHT_FRAME if tight else FRAME
        self._panels = Panels(sweep, max(3, console.height - frame), tight=tight)
        self._drawn, self._clock = 0.0, DriverClock()
        self._sweep = sweep
        self._panel: RenderableType | None = None
        self._waiting: Waiting | None = Waiting(f"{sweep}: starting")
        self._live = Live(
            self._compose(),
            console=console,
            refresh_per_second=REDRAWS,
            redirect_stdout=False,  # `_above` has all output, also that of programs
            redirect_stderr=False,
        )
        self._exits = ExitStack()

    def open(self) -> None:
        """Take the terminal."""
        self._exits.enter_context(under_a_panel())
        self._exits.callback(self._live.stop)
        self._live.start(refresh=True)
        self._exits.enter_context(_above(self._live.console))

    def close(self) -> None:
        """Give the terminal back, with the last picture left on it."""
        self._exits.close()

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Redraw the panel, at most REDRAWS times per second."""
        now = time.monotonic()
        if now - self._drawn < 1 / REDRAWS and not state.finished:
            return
        self._drawn = now
        if self._panel is None:
            self._waiting = None  # it has started
        self._panel = self._panels.draw(state, elapsed_s(state, self._clock.now(state)))
        self._live.update(self._compose())

    def say(self, text: str) -> None:
        """Show the text below the panel, or in its place before there is one."""
        self._waiting = Waiting(f"{self._sweep}: {text}") if text else None
        self._live.update(self._compose(), refresh=True)

    def _compose(self) -> RenderableType:
        parts = (self._panel, self._waiting)
        return Group(*(part for part in parts if part is not None))


@contextmanager
def _above(console: Console) -> Iterator[None]:
    """Print above a live panel what this process and its programs write to the terminal."""
    originals = {number: os.dup(number) for number in (1, 2) if os.isatty(number)}
    reading, writing = os.pipe()
    over = threading.Event()

    def copy() -> None:
        rest = b""
        while not over.is_set() or select.select([reading], [], [], 0)[0]:
            if not select.select([reading], [], [], 1 / REDRAWS)[0]:
                continue
            *lines, rest = (rest + os.read(reading, 1 << 16)).split(b"\n")
            for line in lines:
                console.print(plain_log(line.decode(errors="replace")), soft_wrap=True)
        if rest:
            console.print(plain_log(rest.decode(errors="replace")), soft_wrap=True)

    thread = threading.Thread(target=copy, name="above the panel", daemon=True)
    thread.start()
    for number in originals:
        os.dup2(writing, number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, original in originals.items():
            os.dup2(original, number)
            os.close(original)
        over.set()
        thread.join()
        os.close(writing)
        os.close(reading)


class Waiting:
    """A spinner with the reason for a wait, and its seconds, which count between events too."""

    def __init__(self, text: str) -> None:
        self._text, self._since = text, time.monotonic()
        self._spinner = Spinner("dots", style="bright_black")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        waited_s = time.monotonic() - self._since
        text = f"{self._text} ({duration(waited_s)})" if waited_s >= 1 else self._text
        self._spinner.update(text=Text(text, style="bright_black"))
        yield self._spinner


class PlainLines:
    """The view without a terminal: a line for each ended trial and new best, and now and then one
    about the whole sweep.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._over: set[str] = set()
        self._best = ""  # the best trial as last printed
        self._waiting = ""  # the last text printed by `say`
        self._summed_up, self._clock = time.monotonic(), DriverClock()
        self._runs: dict[str, int] = {}  # seeds of ended trials, as last printed
        self._front: set[str] = set()  # the front as last printed, with several metrics

    def say(self, text: str) -> None:
        """Print the text, unless it was the last one."""
        if text and text != self._waiting:
            self._say(text)
        self._waiting = text or self._waiting

    def open(self) -> None:
        """Do nothing: there is no terminal to take."""

    def close(self) -> None:
        """Do nothing: there is no terminal to give back."""

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Print lines for ended trials, a new best, and the sweep's end."""
        self._clock.now(state)  # sees the last event
        touched = dict.fromkeys(event.trial for event in events if hasattr(event, "trial"))
        for name in touched:
            trial = state.trials.get(name or "")
            if trial is not None and trial.over and trial.id not in self._over:
                self._over.add(trial.id)
                self._say(_describe_end(state, trial))
            elif trial is not None and len(trial.runs) > self._runs.get(trial.id, 1):
                self._say(f"{trial.id} was trained again: {trial_values(trial)}")
            if trial is not None and trial.over:
                self._runs[trial.id] = len(trial.runs)
        if state.spec.several:
            self._print_front(state)
        elif state.best is not None:
            self._print_best(state, state.trials[state.best])
        if time.monotonic() - self._summed_up >= SUMMARY_S and not state.finished:
            self.sum_up(state)
        for event in events:
            if isinstance(event, Finished):
                self.say_end(state)

    def skip(self, state: SweepState) -> None:
        """Say nothing of what happened until now."""
        self._over = {name for name, trial in state.trials.items() if trial.over}
        self._front = {name for name in state.front if state.trials[name].over}
        self._runs = {name: len(trial.runs) for name, trial in state.trials.items()}
        self._best = state.best or ""

    def say_end(self, state: SweepState) -> None:
        """Print how the sweep ended."""
        why = why_ended(state)
        self._say(f"{state.state}{f': {why}' if why else ''}")

    def sum_up(self, state: SweepState) -> None:
        """Print a line about the whole sweep."""
        self._summed_up = time.monotonic()
        self._say(progress_line(state, elapsed_s(state, self._clock.now(state))))

    def _print_best(self, state: SweepState, best: TrialState) -> None:
        """Print a new best trial, with the reason if its value is no better than the last one's."""
        before = state.trials.get(self._best)
        if best is before or (before is not None and best.state == "RUNNING"):
            return  # which of running trials is the best changes too often
        why = ""
        if state.replicates.best_finalist is not None:
            why = " (the best finalist)"
        elif before is not None and before.loss == math.inf:
            why = f" ({before.id} has no value any more)"
        elif before is not None and best.loss > before.loss:
            step = min(before.step, best.step)
            why = f" (better than {before.id} at step {step})"
            if best.at_end and before.at_end:
                why = " (by the seeds that both have)"
            if best.at_end and not before.at_end:
                why = " (the first that came to its end)"
        self._best = best.id
        self._say(f"{best.id} is the best so far, {trial_values(best)}{why}")

    def _print_front(self, state: SweepState) -> None:
        """Print ended trials that joined the front; running ones join and leave it too often."""
        front = {name for name in state.front if state.trials[name].over}
        for name in [name for name in state.front if name in front - self._front]:
            size = f"{len(front)} trial{'s' * (len(front) > 1)}"
            self._say(f"{name} joins the Pareto front ({size}), {trial_values(state.trials[name])}")
        self._front = front

    def _say(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True)


def _describe_end(state: SweepState, trial: TrialState) -> str:
    progress = at_step(trial, state.spec)
    progress = f"{progress} {state.spec.unit}" if state.spec.fidelity else f"step {progress}"
    ending = f"{trial.id} {trial.state} at {progress}"
    value = f", {trial_values(trial)}" if trial.values else ""
    value += f", as {trial.memo} had it" if trial.memo else ""
    if trial.shrink:
        value += f", micro-batches of {micro_batch_share(trial.shrink)}"
    message = "" if trial.state == "COMPLETED" else error_line(trial.message)
    why = ": ".join(filter(None, (trial.reason, message)))
    return f"{ending}{value}{f' ({why})' if why else ''}"
