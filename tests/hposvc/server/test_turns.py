"""Slow requests of one kind stop neither the others nor the health of the server."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import served
from waiting import until

from hposvc.errors import NotFound
from hposvc.server import submissions, turns
from hposvc.server.routes import sweeps as reading

MANY = 60


@pytest.fixture
def server(tmp_path):
    with served.client(tmp_path) as client:
        yield client


class Slow:
    """Work that takes until it may go on."""

    def __init__(self):
        self.go, self.begun = threading.Event(), []

    def __call__(self, *arguments, **options):
        self.begun.append(1)
        self.go.wait(served.DEADLINE_S)
        raise NotFound("gone")


def test_many_slow_requests_of_one_route_leave_threads_to_all_others(server, monkeypatch):
    slow = Slow()
    monkeypatch.setattr(reading, "find_sweeps", slow)
    lines = server.app.state.service.turns
    with ThreadPoolExecutor(MANY + 1) as clients:
        try:
            asked = [clients.submit(server.get, "/api/v1/sweeps") for _ in range(MANY)]
            until(lambda: lines.waiting == MANY - turns.AT_ONCE, "all wait in line")
            assert len(slow.begun) == turns.AT_ONCE
            for other in ("/healthz", "/readyz", "/api/v1/me", "/api/v1/operations", "/"):
                answer = clients.submit(server.get, other).result(served.DEADLINE_S)
                assert answer.status_code == 200, other
        finally:
            slow.go.set()
        assert {each.result().status_code for each in asked} == {404}
    assert len(slow.begun) == MANY


def test_who_waits_too_long_is_told_when_to_ask_again(server, monkeypatch):
    slow = Slow()
    monkeypatch.setattr(submissions, "submit", slow)
    monkeypatch.setattr(turns, "LONGEST_S", 0.0)
    with ThreadPoolExecutor(turns.AT_ONCE) as clients:
        try:
            for _ in range(turns.AT_ONCE):
                clients.submit(server.post, "/api/v1/sweeps", json={"spec": served.SPEC})
            until(lambda: len(slow.begun) == turns.AT_ONCE, "all have begun")
            refused = server.post("/api/v1/sweeps", json={"spec": served.SPEC})
        finally:
            slow.go.set()
    assert refused.status_code == 503
    assert served.errors(refused)[0]["code"] == "busy"
    assert int(refused.headers["Retry-After"]) > 0
