import asyncio
from contextlib import contextmanager

import pytest
from agent_sweeps import quick_store

from hposvc.journal import agents
from hposvc.server.exchange import Exchange
from hposvc.server.problems import ApiError


@pytest.fixture
def exchange():
    with quick_store() as store:
        exchange = Exchange(store)
        with exchange.running():
            yield exchange


def wish(name):
    return lambda connection: agents.wish(connection, "s", name, 1, "", 0.0)


def refuse(connection):
    raise ApiError(400, "bad_request", "no")


def fail(connection):
    agents.wish(connection, "s", "half", 1, "", 0.0)
    raise RuntimeError("broken")


def names(exchange):
    return {client.client for client in exchange.look_at("s")[1]}


async def gather(exchange, *works):
    return await asyncio.gather(*map(exchange.change, works), return_exceptions=True)


def test_changes_that_come_together_share_a_transaction(exchange, monkeypatch):
    commits, writing = [], exchange.store.writing

    @contextmanager
    def counted():
        with writing() as connection:
            yield connection
        commits.append(1)

    monkeypatch.setattr(exchange.store, "writing", counted)
    many = [f"c{number}" for number in range(100)]
    asyncio.run(gather(exchange, *map(wish, many)))
    assert names(exchange) == {*many}
    assert len(commits) < 50


def test_a_refusal_or_an_error_is_told_to_its_request_and_harms_no_other(exchange):
    works = [wish("a"), refuse, wish("b"), fail, wish("c")]
    results = asyncio.run(gather(exchange, *works))
    assert [type(result).__name__ for result in results] == [
        "NoneType",
        "ApiError",
        "NoneType",
        "RuntimeError",
        "NoneType",
    ]
    assert names(exchange) == {"a", "b", "c"}, "nothing is half done"
