"""The events of one sweep, or of all, as JSON or as server-sent events."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from hposvc.errors import fail
from hposvc.journal import feed as journal_feed
from hposvc.journal.feed import BEGIN, FeedPosition
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import driver_state
from hposvc.server import models
from hposvc.server.access import Principal, Reader
from hposvc.server.answers import JSON, from_cursor, to_cursor
from hposvc.server.feed import EncodedEvent
from hposvc.server.folded import Unreadable
from hposvc.server.principal import is_valid
from hposvc.server.problems import unauthorized
from hposvc.server.routes.sweeps import SweepId
from hposvc.server.service import Service, Serving

router = APIRouter(tags=["events"])

STREAM = "text/event-stream"
HEARTBEAT_S = 15  # a comment, so that a proxy keeps the connection
STALLED_S = 60  # a client that takes nothing for so long is let go
CHECK_S = 5.0  # between two looks whether the token of a stream is still good
LOOK_S = 2.0  # a listener that was not woken looks into the journal itself: a driver may have ended
AS_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {STREAM: {"schema": {"type": "string"}}}}
}
QUIET = b""  # there is nothing to send yet
LONGEST_S = 60.0  # a request waits
LAST = (1 << 63) - 1  # the largest number that a database has

Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_S, description="If there are none, wait for some, so many seconds."),
]
Limit = Annotated[int, Query(ge=1, le=1000)]
LastEventId = Annotated[
    str | None, Header(max_length=400, description="In place of `since`, for a client of a stream.")
]


@router.get("/sweeps/{id}/events", response_model=models.EventList, responses=AS_STREAM)
async def get_events(
    request: Request,
    service: Serving,
    caller: Reader,
    sweep: SweepId,
    since: Annotated[int, Query(ge=0, le=LAST, description="A number of an event.")] = 0,
    wait: Wait = 0,
    limit: Limit = 1000,
    follow: Annotated[
        bool, Query(description="As a stream: go on although the sweep is over.")
    ] = False,
    last_event_id: LastEventId = None,
) -> Response:
    """Return the events of a sweep behind number `since`, in order.

    With `Accept: text/event-stream` they come as server-sent events, as they happen, and the
    stream ends with `event: end` when the sweep is over.
    """
    row = await run_in_threadpool(service.find, caller, sweep)
    if _wants_stream(request):
        since = since if last_event_id is None else _number(last_event_id)
        return _stream(service, caller, _follow_sweep(service, row, since, follow))
    deadline = time.monotonic() + min(wait, LONGEST_S)
    async with service.feed.listening(row.id) as listener:
        while True:
            page = await run_in_threadpool(service.feed.page, row, since, limit)
            over = not page.events and await run_in_threadpool(_is_over, service, row, since)
            left_s = deadline - time.monotonic()
            if page.events or over or left_s <= 0 or service.feed.closing:
                break
            await listener.wait(min(left_s, LOOK_S))
    await _check_valid(service, caller, wait)
    following = page.events[-1].seq if page.events else since
    if page.events:
        over = await run_in_threadpool(_is_over, service, row, following)
    return _answer(page.events, json.dumps(following), f',"over":{json.dumps(over)}')


@router.get("/events", response_model=models.Feed, responses=AS_STREAM)
async def get_all_events(
    request: Request,
    service: Serving,
    caller: Reader,
    since: Annotated[
        str | None,
        Query(max_length=400, description="The `next` of an answer, or `now`; else all events."),
    ] = None,
    wait: Wait = 0,
    limit: Limit = 1000,
    last_event_id: LastEventId = None,
) -> Response:
    """Return the events of all sweeps that the caller may read, behind a cursor.

    With `Accept: text/event-stream` they come as server-sent events, as they happen, for ever.
    """
    stream = _wants_stream(request)
    given = last_event_id if stream and last_event_id is not None else since
    position = await run_in_threadpool(_position, service, given)
    if stream:
        return _stream(service, caller, _follow_all(service, caller, position))
    deadline = time.monotonic() + min(wait, LONGEST_S)
    async with service.feed.listening(None) as listener:
        while True:
            before = position
            events, position = await run_in_threadpool(_read, service, caller, position, limit)
            if events or service.feed.closing:
                break
            if position == before:  # otherwise more may follow what the caller may not see
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                await listener.wait(min(left_s, LOOK_S))
    await _check_valid(service, caller, wait)
    return _answer([event for _, event in events], json.dumps(to_cursor([*position])), "")


async def _follow_sweep(
    service: Service, row: SweepRow, since: int, follow: bool
) -> AsyncGenerator[bytes, None]:
    async with service.feed.listening(row.id) as listener:
        while not service.feed.closing:
            page = await run_in_threadpool(service.feed.page, row, since, 1000)
            if page.events:
                since = page.events[-1].seq
                yield page.sent
                continue
            if await run_in_threadpool(_is_over, service, row, since, follow):
                end = json.dumps({"sweep": row.id, "next": since})
                yield f"event: end\r\ndata: {end}\r\n\r\n".encode()
                return
            await listener.wait(LOOK_S)
            yield QUIET


async def _follow_all(
    service: Service, caller: Principal, position: FeedPosition
) -> AsyncGenerator[bytes, None]:
    async with service.feed.listening(None) as listener:
        while not service.feed.closing:
            before = position
            events, position = await run_in_threadpool(_read, service, caller, position, 1000)
            if events:
                yield "".join(event.sent(to_cursor([*at])) for at, event in events).encode()
            elif position == before:
                await listener.wait(LOOK_S)
                yield QUIET


def _read(
    service: Service, caller: Principal, position: FeedPosition, limit: int
) -> tuple[list[tuple[FeedPosition, EncodedEvent]], FeedPosition]:
    """Return what follows a position, as far as the caller may see it, and how far that is."""
    events: list[tuple[FeedPosition, EncodedEvent]] = []
    visible: dict[str, bool] = {}
    for row in journal_feed.read(service.sweeps.journal.store, position, limit):
        if row.sweep not in visible:
            sweep = service.sweeps.journal.find(row.sweep)
            visible[row.sweep] = sweep is not None and service.sees(caller, sweep)
        if visible[row.sweep]:
            since = position.seq if position[:2] == row[:2] else row.since
            page = service.feed.page_of(row, since)
            new = [(FeedPosition(row.xid, row.id, event.seq), event) for event in page.events]
            events += new[: limit - len(events)]
            if len(events) == limit or (new and new[-1][0] != row.end):
                return events, events[-1][0]
        position = row.end
    return events, position


def _is_over(service: Service, row: SweepRow, since: int, follow: bool = False) -> bool:
    """Return whether a sweep is over, and its last event has the number `since` or a lower one.

    Args:
        follow: a sweep that has ended may go on, and only a deleted one is over.
    """
    journal = service.sweeps.journal
    if journal.find(row.id) is None:
        return True  # it was deleted
    if follow:
        return False
    driver = driver_state(journal.store, row.id)  # first: one that ends now writes its events
    try:
        with service.folded.open(row) as sweep:
            return sweep.look().finished and driver != "alive" and sweep.seq <= since
    except Unreadable:
        return driver != "alive"


def _position(service: Service, since: str | None) -> FeedPosition:
    if since is None:
        return BEGIN
    if since == "now":
        return journal_feed.end(service.sweeps.journal.store)
    xid, number, seq = from_cursor(since, int, int, int, parameter="since")
    if not all(0 <= part <= LAST for part in (xid, number, seq)):
        raise fail("is of another list", "since")
    return FeedPosition(xid, number, seq)


def _number(last_event_id: str) -> int:
    if not last_event_id.isdecimal() or not last_event_id.isascii() or int(last_event_id) > LAST:
        raise fail(f"is {last_event_id[:60]!r}", "Last-Event-ID", fix="give the id of an event")
    return int(last_event_id)


def _wants_stream(request: Request) -> bool:
    return STREAM in request.headers.get("Accept", "")


def _stream(service: Service, caller: Principal, events: AsyncGenerator[bytes, None]) -> Response:
    sent = _while_valid(service, caller, events)
    return EventSourceResponse(sent, ping=HEARTBEAT_S, send_timeout=STALLED_S)


async def _while_valid(
    service: Service, caller: Principal, events: AsyncGenerator[bytes, None]
) -> AsyncIterator[bytes]:
    """Yield events until the caller's token is revoked, or has ended; also while there are none."""
    store, checked = service.sweeps.journal.store, time.monotonic()
    async with aclosing(events):
        async for sent in events:
            if time.monotonic() - checked > CHECK_S:
                if not await run_in_threadpool(is_valid, caller, store, time.time()):
                    return
                checked = time.monotonic()
            if sent != QUIET:
                yield sent


async def _check_valid(service: Service, caller: Principal, wait_s: float) -> None:
    """Check that the caller's token is still good after a wait.

    Raises:
        ApiError: it was revoked, or has ended.
    """
    store = service.sweeps.journal.store
    if wait_s and not await run_in_threadpool(is_valid, caller, store, time.time()):
        raise unauthorized("the token has ended or was revoked while the request waited")


def _answer(events: Sequence[EncodedEvent], following: str, more: str) -> Response:
    listed = ",".join(event.text for event in events)
    return Response(f'{{"events":[{listed}],"next":{following}{more}}}', media_type=JSON)
