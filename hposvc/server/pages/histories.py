"""Histories of sweeps for charts, kept in memory: a look applies new events only.

Memory is bounded by the number of events behind all histories together, as in `Folded`; a history
takes some 1.5 kB for each event of its sweep, because it keeps what the state forgets.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from starlette.concurrency import run_in_threadpool

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.explained import Explained, explained
from hposvc.analysis.finding import Finding
from hposvc.analysis.verdict import verdict
from hposvc.journal.journal import SweepRow
from hposvc.reporting import charts
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.server.folded import naming_unreadable

MOST_EVENTS = 200_000  # of all histories in memory, some 300 MB
OWN_EVENTS = 100  # what a history without events weighs
MOST_ENTRIES = 500  # sweeps of which models' answers are kept, with or without their histories
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
    """Findings of models on a sweep's results, as of an event."""

    seq: int
    answers: Sequence[Explained]
    fresh_until: float  # by the monotonic clock


@dataclass
class KeptHistory:
    """A sweep's history, with the charts that were made of it."""

    row: SweepRow
    lock: Lock = field(default_factory=Lock)  # of the history
    fitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    history: History | None = None  # None: not read yet
    seq: int = 0
    drawn: dict[str, DrawnChart] = field(default_factory=dict)
    fitted: Fitted | None = None
    judged: tuple[int, list[Finding]] | None = None  # by the number of the event behind the answers

    @property
    def weight(self) -> int:
        """How much memory it takes, in events."""
        return OWN_EVENTS + (self.seq if self.history is not None else 0)


@dataclass(frozen=True)
class ReadHistory:
    """A history that is being read. It must not change meanwhile, so its lock is held."""

    entry: KeptHistory
    history: History

    def judge(self) -> list[Finding]:
        """Return the verdict on the sweep as of the models' last answers."""
        entry, fitted = self.entry, self.entry.fitted
        if entry.judged is None or fitted is None or entry.judged[0] != fitted.seq:
            answers = fitted.answers if fitted else ()
            seq = fitted.seq if fitted else entry.seq
            entry.judged = (seq, verdict(entry.row.id, self.history.state, answers))
        return entry.judged[1]

    def draw(self, kind: str) -> DrawnChart:
        """Return a chart, made lately: one that takes long to make may be a little old."""
        entry, begun = self.entry, time.monotonic()
        drawn = entry.drawn.get(kind)
        seq = entry.fitted.seq if kind in FITTED and entry.fitted else entry.seq
        if drawn is not None and (drawn.seq == seq or begun < drawn.fresh_until):
            return drawn
        self.history.answers = entry.fitted.answers if entry.fitted else None
        chart = charts.KINDS[kind].build(self.history)
        svg = "" if chart is None else charts.draw(chart)
        ended = time.monotonic()
        rest = 0.0 if kind in FITTED else REST * (ended - begun)
        entry.drawn[kind] = DrawnChart(seq, chart, svg, ended + rest)
        return entry.drawn[kind]


class Histories:
    """The histories of the sweeps whose charts were looked at last, each with a lock."""

    def __init__(self, sweeps: api.Sweeps, most_events: int = MOST_EVENTS) -> None:
        self.sweeps, self.most_events = sweeps, most_events
        self._lock = Lock()
        self._entries: OrderedDict[str, KeptHistory] = OrderedDict()  # the last one was read last

    @contextmanager
    def open(self, row: SweepRow) -> Iterator[ReadHistory]:
        """Open a sweep's history as of now to be read, alone.

        Raises:
            Unreadable: another version wrote the sweep, or its packed events are damaged.
        """
        entry = self._entry(row)
        with entry.lock:
            history = self._look(entry)
            yield ReadHistory(entry, history)
        self._evict()

    async def fit(self, row: SweepRow) -> None:
        """Ask models what a sweep's results say, unless they said so lately.

        Meanwhile other charts are read, and whoever waits here holds no thread.
        """
        entry = self._entry(row)
        if entry.fitted is not None and entry.fitting.locked():
            return  # what is there does until then
        async with entry.fitting:
            await run_in_threadpool(self._fit, entry)

    def _fit(self, entry: KeptHistory) -> None:
        with entry.lock:
            history, fitted = self._look(entry), entry.fitted
            seq, rests = entry.seq, not history.state.finished
            if fitted and (fitted.seq == seq or (rests and time.monotonic() < fitted.fresh_until)):
                return
            spec, trials = history.state.spec, [*history.state.history()]
        begun = time.monotonic()
        answers = explained(spec, trials)
        ended = time.monotonic()
        entry.fitted = Fitted(seq, answers, ended + max(FITS_S, REST * (ended - begun)))

    @property
    def events(self) -> int:
        """The number of events behind all histories in memory."""
        with self._lock:
            return sum(entry.weight for entry in self._entries.values())

    def _look(self, entry: KeptHistory) -> History:
        """Apply the journal's new events."""
        history = entry.history
        entry.history = None  # until all events were applied in full
        with naming_unreadable(entry.row):
            if history is None:
                history, entry.seq = History(specs.restore(entry.row.spec)), 0
                entry.drawn.clear()
            for seq, event in self.sweeps.read(entry.row.id, entry.seq):
                history.apply(event)
                entry.seq = seq
        entry.history = history
        return history

    def _entry(self, row: SweepRow) -> KeptHistory:
        with self._lock:
            entry = self._entries.get(row.id)
            # A sweep that was deleted may have left its id to another one.
            if entry is None or (entry.row.created, entry.row.spec) != (row.created, row.spec):
                entry = self._entries[row.id] = KeptHistory(row)
            self._entries.move_to_end(row.id)
            return entry

    def _evict(self) -> None:
        """Forget the histories that were not read for longest, until the others fit.

        What models said of them, which is small and took long, is kept.
        """
        with self._lock:
            events = sum(entry.weight for entry in self._entries.values())
            for entry in [*self._entries.values()][:-1]:
                if events <= self.most_events:
                    break
                if entry.lock.acquire(blocking=False):  # else somebody reads it
                    events -= entry.weight - OWN_EVENTS
                    entry.history = None
                    entry.drawn.clear()
                    entry.lock.release()
            while len(self._entries) > MOST_ENTRIES:
                self._entries.popitem(last=False)
