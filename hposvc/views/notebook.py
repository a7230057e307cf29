"""The live view of a running sweep in a notebook: a table in the cell's output, updated in place.

IPython is never loaded for it: a notebook has loaded it.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from importlib import import_module
from typing import Any

from hposvc.events import Event
from hposvc.state.driver_clock import DriverClock
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import duration, number
from hposvc.views.dashboard import elapsed_s, last_ended, progress_line
from hposvc.views.formatting import scalar, why_ended

UPDATE_S = 0.5  # shortest time between two updates
RUNNING, ENDED = 12, 5  # most trials shown


def in_notebook() -> bool:
    """Return whether this process shows its output in a notebook."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython and ipython.get_ipython(), "kernel")


class NotebookTable:
    """The table of a sweep in the output of a cell."""

    def __init__(self, sweep: str) -> None:
        self._sweep = sweep
        self._display: Any = import_module("IPython.display")
        self._table: Any = None  # the output to update; None: there is none yet
        self._updated, self._clock = 0.0, DriverClock()
        self._text = ""  # the table as it was last drawn, without what is waited for

    def open(self) -> None:
        """Show that the sweep starts."""
        self.say("starting")

    def close(self) -> None:
        """Do nothing: the last table stays."""

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Update the table, at most once in UPDATE_S seconds until the sweep has ended."""
        now = time.monotonic()
        if now - self._updated < UPDATE_S and not state.finished:
            return
        self._updated = now
        self._text = draw(self._sweep, state, elapsed_s(state, self._clock.now(state)))
        self._show(self._text)

    def say(self, text: str) -> None:
        """Show the text below the table; an empty text removes it."""
        line = f"<p><b>{escape(self._sweep)}</b>: {escape(text)}</p>" if text else ""
        self._show(self._text + line)

    def _show(self, text: str) -> None:
        html = self._display.HTML(text)
        if self._table is None:
            self._table = self._display.display(html, display_id=True)
        else:
            self._table.update(html)


def draw(sweep: str, state: SweepState, seconds: float) -> str:
    """Return a sweep as HTML: its progress, its running trials, the best, and those ended last.

    Args:
        seconds: how long drivers worked on the sweep.
    """
    best = [state.trials[name] for name in state.front]
    running = list(state.trials.running())[:RUNNING]
    shown = {trial.id: trial for trial in [*best, *running, *last_ended(state)[:ENDED]]}
    names = list(dict.fromkeys(name for trial in shown.values() for name in trial.params))
    metrics = [metric.name for metric in state.spec.objectives]
    columns = ["trial", "state", state.spec.unit, *metrics, "time", *names]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    front = set(state.front)
    rows = "".join(_row(trial, names, trial.id in front) for trial in shown.values())
    ended = f": {escape(why_ended(state))}" if state.finished and why_ended(state) else ""
    title = f"<b>{escape(sweep)}</b> {state.state}{ended}"
    line = escape(progress_line(state, seconds))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<p>{title}<br>{line}</p>{table if shown else ''}"


def _row(trial: TrialState, names: Sequence[str], is_best: bool) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in _cells(trial, names))
    return f"<tr{' style=font-weight:bold' if is_best else ''}>{cells}</tr>"


def _cells(trial: TrialState, names: Sequence[str]) -> Iterator[str]:
    yield trial.id
    yield str(trial.state)
    yield str(trial.step)
    missing = [None] * (len(trial.objectives) - len(trial.values))
    yield from (number(value) for value in [*trial.values, *missing])
    yield duration(trial.seconds)
    yield from (scalar(trial.params[name]) if name in trial.params else "" for name in names)
