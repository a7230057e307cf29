"""Histories of sweeps for charts, kept in memory, and the charts that were made of them."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from starlette.concurrency import run_in_threadpool

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.finding import Finding
from hposvc.analysis.findings import why
from hposvc.analysis.parameter_effects import Explained, explained
from hposvc.events import Event
from hposvc.journal.follow import Follow, Followers
from hposvc.journal.journal import SweepRow
from hposvc.reporting import charts
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.server.folded import naming_unreadable
from hposvc.text import count

# Of all histories in memory, some 300 MB: a history takes some 1.5 kB for each event of its sweep,
# because it keeps what the state forgets.
MOST_EVENTS = 200_000
MOST_ANSWERS = 500  # sweeps of which models' answers are kept, with or without their histories
REST = 20  # a chart that took a second to make is made again after so many seconds
# Charts of models, which take seconds to fit: of a live sweep at most once in so many seconds.
FITTED, FITS_S = ("importance", "slices", "contours"), 60.0


@dataclass(frozen=True)
class DrawnChart:
    """A chart as it was at an event."""

    seq: int
    chart: Chart | None  # None: it does not apply to the sweep
    svg: str
    fresh_until: float  # by the monotonic clock


@dataclass(frozen=True)
class Fitted:
    """The models' answers about a sweep's results, and the findings, both as of one event."""

    seq: int
    trials: int  # begun until then
    is_over: bool
    answers: Sequence[Explained]
    findings: Sequence[Finding]
    fresh_until: float  # by the monotonic clock


@dataclass
class ModelAnswers:
    """The last answers of models on a sweep: slow to get and small, they outlive the history."""

    fitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    fitted: Fitted | None = None


@dataclass
class ChartedSweep:
    """A fold of a sweep's events: its history, with the charts that were made of it."""

    history: History
    drawn: dict[str, DrawnChart] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        self.history.apply(event)


@dataclass(frozen=True)
class ReadHistory:
    """A history that is being read. It must not change meanwhile, so its lock is held."""

    seq: int
    charted: ChartedSweep
    answers: ModelAnswers

    @property
    def history(self) -> History:
        return self.charted.history

    def draw(self, kind: str) -> DrawnChart:
        """Return a chart, made lately: one that takes long to make may be a little old."""
        fitted, begun = self.answers.fitted, time.monotonic()
        drawn = self.charted.drawn.get(kind)
        seq = fitted.seq if kind in FITTED and fitted else self.seq
        if drawn is not None and (drawn.seq == seq or begun < drawn.fresh_until):
            return drawn
        self.history.answers = fitted.answers if fitted else None
        chart = charts.KINDS[kind].build(self.history)
        if chart and kind in FITTED and fitted and not fitted.is_over:
            known = f"Its models know {count(fitted.trials, 'trial')}."
            chart = replace(chart, message=f"{chart.message} {known}")
        svg = "" if chart is None else charts.draw_for_screens(chart)
        ended = time.monotonic()
        rest = 0.0 if kind in FITTED else REST * (ended - begun)
        self.charted.drawn[kind] = DrawnChart(seq, chart, svg, ended + rest)
        return self.charted.drawn[kind]


class Histories:
    """The histories of the sweeps whose charts were looked at last."""

    def __init__(self, sweeps: api.Sweeps, most_events: int = MOST_EVENTS) -> None:
        self.sweeps = sweeps
        self.followers = Followers(self._follow, most_events)
        self._lock = Lock()  # of the answers
        self._answers: OrderedDict[tuple[str, float], ModelAnswers] = OrderedDict()

    @contextmanager
    def open(self, row: SweepRow) -> Iterator[ReadHistory]:
        """Open a sweep's history as of now to be read, alone.

        Raises:
            Unreadable: another version wrote the sweep, or its packed events are damaged.
        """
        with self.followers.open(row) as follow:
            with naming_unreadable(row):
                charted = follow.look()
            yield ReadHistory(follow.seq, charted, self._answers_on(row))

    async def fit(self, row: SweepRow) -> Fitted:
        """Return what models say of a sweep's results; they are asked unless they said so lately.

        Meanwhile other charts are read, and whoever waits here holds no thread.
        """
        answers = self._answers_on(row)
        if answers.fitted is not None and answers.fitting.locked():
            return answers.fitted  # what is there does until then
        async with answers.fitting:
            answers.fitted = await run_in_threadpool(self._fit, row, answers.fitted)
        return answers.fitted

    def _fit(self, row: SweepRow, fitted: Fitted | None) -> Fitted:
        with self.open(row) as read:
            rests = not read.history.state.finished
            if fitted and (
                fitted.seq == read.seq or (rests and time.monotonic() < fitted.fresh_until)
            ):
                return fitted
        own = api.follow_row(self.sweeps, row)  # a state that no other reader moves on meanwhile
        state, begun = own.look(), time.monotonic()
        answers = explained(state.spec, [*state.history()])
        said = why(row.id, state, answers)
        ended = time.monotonic()
        fresh_until = ended + max(FITS_S, REST * (ended - begun))
        return Fitted(own.seq, len(state.trials), state.finished, answers, said, fresh_until)

    def _follow(self, row: SweepRow) -> Follow[ChartedSweep]:
        return Follow(self.sweeps, row, lambda: ChartedSweep(History(specs.restore(row.spec))))

    def _answers_on(self, row: SweepRow) -> ModelAnswers:
        """Return the models' answers on a sweep, and forget those not read for longest."""
        key = (row.id, row.created)  # a deleted sweep may have left its id to another one
        with self._lock:
            answers = self._answers.setdefault(key, ModelAnswers())
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
            return answers
