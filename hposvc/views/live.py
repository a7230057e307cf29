"""A sweep while it runs: a table that redraws itself on a terminal, plain lines elsewhere.

Both are watchers of the runner and write to stderr. A view that fails says so once and falls
silent; the sweep goes on.
"""

import math
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from hposvc.events import Event, Finished
from hposvc.state import SweepState
from hposvc.trial import TrialState
from hposvc.views.panel import Panels, elapsed_s
from hposvc.views.words import last_line, measured, shrunk

REDRAWS = 4  # a second
FRAME = 14  # lines of the panel besides its rows


class Watching:
    """Shows a sweep on a console for as long as the block lasts."""

    def __init__(self, sweep: str, console: Console) -> None:
        self.console = console
        self._shown: Table | Lines = (
            Table(sweep, console) if console.is_terminal else Lines(console)
        )
        self._broken = False

    def __enter__(self) -> "Watching":
        self._shown.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.close()

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """Show what changed; it never raises."""
        if self._broken:
            return
        try:
            self._shown.turn(state, events)
        except Exception as error:  # noqa: BLE001 - a view must not end the sweep
            self._broken = True
            self._shown.close()
            self.console.print(f"the live view broke ({error!r}); the sweep goes on")


class Table:
    """The panel of the sweep, redrawn in place."""

    def __init__(self, sweep: str, console: Console) -> None:
        self._panels = Panels(sweep, max(3, console.height - FRAME))
        self._drawn = 0.0
        self._live = Live(
            Spinner("dots", Text(f"{sweep}: starting", style="bright_black")),
            console=console,
            refresh_per_second=REDRAWS,
        )

    def open(self) -> None:
        """Take the terminal."""
        self._live.start(refresh=True)

    def close(self) -> None:
        """Give the terminal back, with the last picture left on it."""
        self._live.stop()

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """Redraw, if it is time to."""
        now = time.monotonic()
        if now - self._drawn < 1 / REDRAWS and not state.finished:
            return
        self._drawn = now
        self._live.update(self._panels.draw(state, elapsed_s(state, time.time())))


class Lines:
    """A line for every trial that is over, and for every new best."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._over: set[str] = set()
        self._best = ("", math.inf)  # the trial that was told, and the lowest loss so far
        self._front: set[str] = set()  # the trials that were told, of several metrics

    def open(self) -> None:
        """Nothing to take."""

    def close(self) -> None:
        """Nothing to give back."""

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """Print what is new."""
        touched = dict.fromkeys(event.trial for event in events if hasattr(event, "trial"))
        for name in touched:
            trial = state.trials.get(name or "")
            if trial is not None and trial.over and trial.id not in self._over:
                self._over.add(trial.id)
                self._say(_ending(state, trial))
        if state.spec.several:
            self._tell_front(state)
        elif state.best is not None:
            self._tell_best(state.trials[state.best])
        for event in events:
            if isinstance(event, Finished):
                self._say(f"{event.state}{f' ({event.reason})' if event.reason else ''}")

    def _tell_best(self, best: TrialState) -> None:
        if best.loss < self._best[1]:
            if best.id != self._best[0]:
                self._say(f"{best.id} is the best so far, {measured(best)}")
            self._best = (best.id, best.loss)

    def _tell_front(self, state: SweepState) -> None:
        """Trials that are over and on the front: while one runs, it comes and goes."""
        front = {name for name in state.front if state.trials[name].over}
        for name in [name for name in state.front if name in front - self._front]:
            self._say(f"{name} is on the front of {len(front)}, {measured(state.trials[name])}")
        self._front = front

    def _say(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True)


def _ending(state: SweepState, trial: TrialState) -> str:
    unit = state.spec.fidelity.unit if state.spec.fidelity else "step"
    at = f"{trial.id} {trial.state} at {trial.step}/{state.spec.last_step} {unit}"
    value = f", {measured(trial)}" if trial.values else ""
    if trial.shrink:
        value += f", micro-batches of {shrunk(trial.shrink)}"
    why = ": ".join(filter(None, (trial.reason, last_line(trial.message))))
    return f"{at}{value}{f' ({why})' if why else ''}"
