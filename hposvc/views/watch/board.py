"""The table of trials that `watch` shows: which rows, in which order, and the text of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from hposvc.analysis.selection import COMPARISONS, choose
from hposvc.events import DriverState, Event, Ordered, error_line
from hposvc.state.answers import Trial
from hposvc.state.summary import INTERRUPTED, trial_row
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialPhase, TrialState, trial_name
from hposvc.text import duration, number
from hposvc.views.console import plain
from hposvc.views.dashboard import COLOURS, searched, trend
from hposvc.views.formatting import WIDTH, scalar

STATES: tuple[TrialPhase | None, ...] = (
    *(None, "RUNNING", "PENDING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"),
)
ORDERS = ("best first", "newest first", "oldest first", "longest first", "furthest first")
VALUES = 3  # columns of metrics at most
MARK, BEST = "›", "★"
BLANK = {ord("\t"): " ", ord("\n"): " "}


@dataclass
class Board:
    """The trials of a sweep, filtered and sorted; a look changes only rows of touched trials."""

    state: SweepState
    driver: DriverState = "alive"
    query: str = ""  # words and conditions, all of which hold for the shown trials
    only: TrialPhase | None = None  # None: trials of all states
    order: str = ORDERS[0]
    names: list[str] = field(default_factory=list)  # the trials shown, from the top
    _rows: dict[str, Trial] = field(default_factory=dict)  # made once a query needs them
    _stale: set[str] = field(default_factory=set)  # trials touched since their row was made

    def __post_init__(self) -> None:
        self._stale = set(self.state.trials)
        self.arrange()

    def take(self, events: Iterable[Event], driver: DriverState) -> set[str]:
        """Take note of events that the state has applied, and return the trials they touched.

        Args:
            driver: whether one is at work, without which running trials are interrupted.
        """
        named: set[str | None] = {
            event.order.trial if isinstance(event, Ordered) else getattr(event, "trial", None)
            for event in events
        }
        touched = {name for name in named if name is not None and name in self.state.trials}
        if None in named or driver != self.driver:  # the whole sweep: it may change any trial
            touched = set(self.state.trials)
        self.driver = driver
        self._stale |= touched
        return touched

    def ask(self, query: str) -> None:
        """Show the trials of which all words and conditions of a query hold.

        Raises:
            SpecError: a condition names no column; the trials shown stay as they are.
        """
        before, self.query = self.query, query
        try:
            self.arrange()
        except ValueError:
            self.query = before
            raise

    def arrange(self) -> None:
        """Filter and sort the trials anew."""
        trials = self.state.trials
        names = [name for name in trials if self.only in (None, trials[name].state)]
        if self.query.strip():
            names = self._matching(names)
        self.names = self._sorted(names)

    def _matching(self, names: Sequence[str]) -> list[str]:
        """Return the trials of which all words and conditions of the query hold."""
        for name in self._stale:
            self._rows[name] = trial_row(self.state, self.state.trials[name], {}, self.driver)
        self._stale.clear()
        words = self.query.split()
        conditions = [word for word in words if any(sign in word for sign in COMPARISONS)]
        texts = [word.lower() for word in words if word not in conditions]
        rows = choose([self._rows[name] for name in names], self.state.spec, conditions)
        return [row.trial for row in rows if all(text in _words(row) for text in texts)]

    def _sorted(self, names: list[str]) -> list[str]:
        trials = self.state.trials
        match self.order:
            case "oldest first":
                return names
            case "newest first":
                return names[::-1]
            case "longest first":
                return sorted(names, key=lambda name: -trials[name].seconds_at(self.state.now))
            case "furthest first":
                return sorted(names, key=lambda name: -trials[name].step)
        wanted = {*names}
        return [trial.id for trial in self.state.ranked() if trial.id in wanted]

    def count(self) -> str:
        """Describe which trials are shown, as in `12 of 60 trials · FAILED · best first`."""
        total = len(self.state.trials)
        shown = f"{total} trials" if len(self.names) == total else f"{len(self.names)} of {total}"
        return " · ".join(filter(None, (shown, self.only or "", self.query, self.order)))

    def head(self, width: int) -> Text:
        """Return the names of the columns."""
        spec = self.state.spec
        metrics = [metric.name for metric in spec.objectives[:VALUES]]
        cells = ["  trial", "state", spec.unit, *metrics, "trend", "time", "why, or configuration"]
        line = Text(self._line(cells, width))
        line.stylize("bold")  # a text without spans loses its style on the way to the screen
        return line

    def row(self, name: str, width: int, now: float, selected: bool = False) -> Text:
        """Return the line of a trial."""
        trial = self.state.trials[name]
        best = name in self.state.front
        lost = trial.state == "RUNNING" and self.driver != "alive"
        shown = INTERRUPTED if lost else str(trial.state)
        values = [number(value) for value in trial.values[:VALUES]]
        values += ["–"] * (min(VALUES, len(trial.objectives)) - len(values))
        mark = " baseline" if name == self.state.replicates.baseline_trial else ""
        again = f"×{trial.attempts}" if trial.attempts > 1 else ""
        mark += f" {len(trial.runs)} seeds" if trial.seeds else ""
        cells = [
            f"{MARK if selected else ' '}{BEST if best else ' '}{trial.id}{again}{mark}",
            shown.lower(),
            str(trial.step),
            *values,
            trend(trial),
            duration(trial.seconds_at(now)),
            self._last_cell(trial),
        ]
        line = Text(self._line(cells, width))
        if best:
            line.stylize("bold green")
        elif not selected:
            first, second, *_ = self._widths()
            start, end = min(width, first + 1), min(width, first + second + 2)
            line.stylize(COLOURS.get(shown, ""), start, end)
        if selected:
            line.stylize("reverse")
        return line

    def _last_cell(self, trial: TrialState) -> str:
        params = trial.reported_params
        names = [name for name in searched(self.state) if name in params]
        pairs = "  ".join(f"{name} {scalar(params[name])}" for name in names)
        if trial.state == "FAILED":
            return f"{trial.reason}: {error_line(trial.message)}"
        return f"{trial.reason}  {pairs}" if trial.reason else pairs

    def _widths(self) -> list[int]:
        spec = self.state.spec
        longest = trial_name(len(self.state.trials))
        metrics = [max(9, min(12, len(metric.name))) for metric in spec.objectives[:VALUES]]
        return [len(longest) + 5, 11, max(5, len(spec.unit)), *metrics, WIDTH, 7]

    def _line(self, cells: Sequence[str], width: int) -> str:
        """Return cells in their columns, figures to the right, cut to the width of the line."""
        widths = self._widths()
        right = {2, *range(3, len(widths) - 2), len(widths) - 1}
        parts = [
            f"{_cut(cell, size):>{size}}" if place in right else f"{_cut(cell, size):<{size}}"
            for place, (cell, size) in enumerate(zip(cells, widths, strict=False))
        ]
        text = " ".join([*parts, "", cells[-1]])
        return _cut(plain(text).translate(BLANK), width).ljust(width)


def _words(row: Trial) -> str:
    """Return the text in which words of a query are looked for."""
    params = " ".join(f"{name}={scalar(value)}" for name, value in row.params.items())
    return f"{row.trial} {row.state} {row.reason} {row.detail} {params}".lower()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
