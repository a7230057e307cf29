"""New events for all who listen: one thread asks the journal, and an event is encoded once."""

import asyncio
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from hposvc.errors import StoreError
from hposvc.journal import feed
from hposvc.journal.compression import EventRow
from hposvc.journal.feed import FeedPosition, FeedRow
from hposvc.journal.journal import Journal, SweepRow
from hposvc.text import spelled

POLL_S = 0.1
OUT_OF_REACH_S = 1.0  # between two questions to a journal that does not answer
ROWS = 1000  # of the feed that are read at a time
MAX_BYTES = 4 << 20  # of the events in an answer; a single event may be larger
CACHED = 32  # encoded pages that are kept for other listeners

log = logging.getLogger("hposvc")


class EncodedEvent(NamedTuple):
    """An event as JSON text."""

    seq: int
    kind: str
    text: str

    def sent(self, identifier: str) -> str:
        """Return the event as a server-sent event."""
        return f"id: {identifier}\r\nevent: {self.kind}\r\ndata: {self.text}\r\n\r\n"


@dataclass(frozen=True)
class Page:
    """Events of one sweep that follow one another."""

    events: Sequence[EncodedEvent]

    @cached_property
    def sent(self) -> bytes:
        """The page as server-sent events."""
        return "".join(event.sent(f"{event.seq}") for event in self.events).encode()


@dataclass(eq=False)
class EventListener:
    """Someone who waits for new events."""

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, timeout_s: float) -> None:
        """Wait for new events; return without any when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.news.wait()
        except TimeoutError:
            return
        self.news.clear()


class Feed:
    """The journal's new events, for the listeners of this process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.closing = False  # listeners are to end
        self.polled = time.monotonic()  # when the journal answered last
        self.encoded = 0  # events so far
        self._lock = threading.Lock()  # of the listeners
        self._listeners: dict[str | None, set[EventListener]] = {}  # by sweep; None: of all sweeps
        self._encoding = threading.Lock()  # of the pages
        self._pages: OrderedDict[tuple[float, str, int, int], Page] = OrderedDict()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask the journal for new events while the block runs."""
        self.closing, stop = False, threading.Event()
        begun = feed.end(self.journal.store)
        thread = threading.Thread(target=self._poll, args=(begun, stop), name="feed", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.closing = True
            stop.set()
            thread.join()
            self._wake(None, *self._listeners)

    @asynccontextmanager
    async def listening(self, sweep: str | None) -> AsyncIterator[EventListener]:
        """Listen to a sweep, or to all: read first, then wait, so that nothing is missed."""
        listener = EventListener(asyncio.get_running_loop())
        with self._lock:
            self._listeners.setdefault(sweep, set()).add(listener)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners[sweep].discard(listener)
                if not self._listeners[sweep]:
                    del self._listeners[sweep]

    @property
    def listeners(self) -> int:
        """The number of those who wait now."""
        with self._lock:
            return sum(map(len, self._listeners.values()))

    @property
    def lag_s(self) -> float:
        """Seconds since the journal last said what is new."""
        return time.monotonic() - self.polled

    def page(self, sweep: SweepRow, since: int, limit: int) -> Page:
        """Return the events of a sweep behind number `since`, at most `limit`."""
        last = min(self.journal.last(sweep.id), since + limit)
        return self._page(sweep.created, sweep.id, since, last)

    def page_of(self, row: FeedRow, since: int) -> Page:
        """Return the events that a row of the feed announces, behind number `since`."""
        return self._page(row.id, row.sweep, max(row.since, since), row.seq)

    def _page(self, identity: float, sweep: str, since: int, last: int) -> Page:
        """Return the encoded events from number `since + 1` to `last`, or as many as fit.

        Args:
            identity: tells the sweep from another one that had its id.
        """
        if last <= since:
            return Page(())
        key = (identity, sweep, since, last)
        with self._encoding:
            if key not in self._pages:
                events = encode(sweep, self.journal.rows(sweep, since, last - since))
                self._pages[key] = Page(tuple(_within(MAX_BYTES, events)))
                self.encoded += len(self._pages[key].events)
            self._pages.move_to_end(key)
            while len(self._pages) > CACHED:
                self._pages.popitem(last=False)
            return self._pages[key]

    def _poll(self, position: FeedPosition, stop: threading.Event) -> None:
        while not stop.wait(POLL_S):
            try:
                rows = feed.read(self.journal.store, position, ROWS)
            except StoreError as error:
                log.warning("the feed of events waits for the journal: %s", error)
                stop.wait(OUT_OF_REACH_S)
                continue
            self.polled = time.monotonic()
            if rows:
                position = rows[-1].end
                self._wake(None, *{row.sweep for row in rows})

    def _wake(self, *sweeps: str | None) -> None:
        with self._lock:
            awake = [each for sweep in sweeps for each in self._listeners.get(sweep, ())]
        for listener in awake:
            try:
                listener.loop.call_soon_threadsafe(listener.news.set)
            except RuntimeError:  # its loop was closed meanwhile
                log.debug("a listener is gone")


def encode(sweep: str, rows: Iterator[EventRow]) -> Iterator[EncodedEvent]:
    """Yield events as JSON, with numbers that JSON does not have as texts."""
    name = json.dumps(sweep)
    for seq, kind, at, body in rows:
        data = body
        if "NaN" in body or "Infinity" in body:
            data = json.dumps(spelled(json.loads(body)), separators=(",", ":"))
        head = f'{{"sweep":{name},"seq":{seq},"kind":{json.dumps(kind)},"time":{json.dumps(at)}'
        yield EncodedEvent(seq, kind, f'{head},"data":{data}}}')


def _within(most: int, events: Iterator[EncodedEvent]) -> Iterator[EncodedEvent]:
    """Yield the first events, of so many bytes together, and one event at least."""
    size = 0
    for event in events:
        size += len(event.text)
        if size > most and size > len(event.text):
            return
        yield event
