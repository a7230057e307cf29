"""New events wake those who listen; an event is read and encoded once for all of them."""

import asyncio
import json

import pytest
import recorded_home
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.events import RetryDue
from hposvc.journal.database import Store
from hposvc.journal.feed import BEGIN
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.journal.tokens import SCOPES
from hposvc.server import feed as feeds
from hposvc.server.access import Principal
from hposvc.server.feed import Feed
from hposvc.server.routes import events as routes
from hposvc.server.service import Service

ANYBODY = Principal("ada", frozenset(SCOPES))


@pytest.fixture
def sweeps(tmp_path, database):
    home = Home(tmp_path / "home", database, "")
    return api.Sweeps(home, Journal(Store(database)))


def write(sweeps, sweep, count):
    last = sweeps.journal.last(sweep)
    sweeps.journal.append(sweep, last, [RetryDue(0.0, "t0001") for _ in range(count)])


def numbers(page):
    return [event.seq for event in page.events]


def test_listeners_of_a_sweep_and_of_all_are_woken(sweeps):
    for sweep in ("one", "other"):
        api.create(sweeps, make_spec(), sweep)
    feed = Feed(sweeps.journal)

    async def listen():
        async with (
            feed.listening("one") as one,
            feed.listening("other") as other,
            feed.listening(None) as all_of_them,
        ):
            assert feed.listeners == 3
            write(sweeps, "one", 1)
            async with asyncio.timeout(20):
                await asyncio.gather(one.wait(60), all_of_them.wait(60))
            assert not other.news.is_set()

    with feed.running():
        asyncio.run(listen())
        assert feed.listeners == 0
    row = sweeps.journal.find("one")
    assert numbers(feed.page(row, 0, 10)) == [1]


def test_an_event_is_encoded_once_for_all_listeners(sweeps):
    api.create(sweeps, make_spec(), "one")
    write(sweeps, "one", 10)
    feed, row = Feed(sweeps.journal), sweeps.journal.find("one")
    pages = [feed.page(row, 4, 1000) for _ in range(20)]
    assert numbers(pages[0]) == [5, 6, 7, 8, 9, 10]
    assert feed.encoded == 6
    assert len({id(page.sent) for page in pages}) == 1
    write(sweeps, "one", 1)
    assert numbers(feed.page(row, 4, 1000)) == [5, 6, 7, 8, 9, 10, 11]  # never an old page
    assert numbers(feed.page(row, 4, 2)) == [5, 6]
    assert numbers(feed.page(row, 11, 2)) == []


def test_a_page_has_so_many_bytes_and_one_event_at_least(sweeps, monkeypatch):
    api.create(sweeps, make_spec(), "one")
    write(sweeps, "one", 3)
    row = sweeps.journal.find("one")
    size = len(Feed(sweeps.journal).page(row, 0, 1).events[0].text)
    monkeypatch.setattr(feeds, "MAX_BYTES", 2 * size)
    assert numbers(Feed(sweeps.journal).page(row, 0, 9)) == [1, 2]
    monkeypatch.setattr(feeds, "MAX_BYTES", 1)
    assert numbers(Feed(sweeps.journal).page(row, 0, 9)) == [1]
    # What was written together comes in pieces, and whole.
    assert follow(Service(sweeps), [100] * 9) == {"one": [1, 2, 3]}


def follow(service, limits, position=BEGIN):
    """Read the feed in answers of these sizes; return the numbers of each sweep's events."""
    got = {}
    for limit in limits:
        events, position = routes._read(service, ANYBODY, position, limit)
        for _, event in events:
            got.setdefault(json.loads(event.text)["sweep"], []).append(event.seq)
    return got


MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["one", "two"]), st.integers(1, 4)),  # a writer
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("lost"), st.integers(1, 5)),  # an answer that does not arrive
        st.tuples(st.just("pack"), st.just(0)),
    ),
    max_size=30,
)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=MOVES)
def test_a_client_that_reconnects_loses_no_event_and_gets_none_twice(sweeps, moves):
    """Two writers and a client, which asks again from what it has got whenever it was cut off."""
    service = Service(sweeps)
    for sweep in ("one", "two"):
        if sweeps.journal.find(sweep) is not None:
            sweeps.journal.remove(sweep)
            (sweeps.home.folder(sweep, None) / "journal.txt").unlink()
        api.create(sweeps, make_spec(), sweep)
    position = routes._position(service, "now")
    of_all, of_one = {"one": [], "two": []}, []
    one = sweeps.journal.find("one")
    for kind, count in [*moves, *[("read", 1000)] * 3]:
        if kind in ("one", "two"):
            write(sweeps, kind, count)
        if kind in ("read", "lost"):
            events, following = routes._read(service, ANYBODY, position, count)
            page = service.feed.page(one, of_one[-1] if of_one else 0, count)
        if kind == "read":
            position = following
            of_one += numbers(page)
            for _, event in events:
                of_all[json.loads(event.text)["sweep"]].append(event.seq)
        if kind == "pack":
            recorded_home.pack(sweeps, "one")
    for sweep, got in of_all.items():
        assert got == [*range(1, sweeps.journal.last(sweep) + 1)]
    assert of_one == of_all["one"]
