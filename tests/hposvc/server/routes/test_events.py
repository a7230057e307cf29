"""Events over HTTP: as JSON or as a stream, of one sweep or of all, none lost and none twice."""

import json
import threading
import time

import pytest
import recorded_home
from fastapi.testclient import TestClient
from guarded import bearer, call, config_of
from simulated_sweeps import make_spec
from waiting import until

from hposvc import api
from hposvc.events import RetryDue
from hposvc.journal.tokens import Tokens
from hposvc.server.app import create_app
from hposvc.server.routes import events as routes
from hposvc.server.service import Service

ADDRESS = "http://127.0.0.1:8900/api/v1/"
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
def service(sweeps):
    return Service(sweeps)


@pytest.fixture
def server(service):
    with TestClient(create_app(service), ADDRESS, raise_server_exceptions=False) as client:
        yield client


def get(server, path, **query):
    response = server.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def sent(text):
    """Return the events of a stream, each as a dict of its fields; comments are left out."""
    blocks = [block for block in text.replace("\r\n", "\n").split("\n\n") if block.strip()]
    fields = [[line.split(": ", 1) for line in block.split("\n")] for block in blocks]
    return [dict(lines) for lines in fields if lines[0][0]]


def test_a_request_waits_for_new_events(sweeps, server):
    recorded_home.cut_off(sweeps, "cut-off")
    cursor = get(server, "events", since="now")["next"]
    assert get(server, "events", since=cursor) == {"events": [], "next": cursor}
    assert get(server, "sweeps/cut-off/events", since=5) == {"events": [], "next": 5, "over": False}
    answers = {}

    def ask(name, path, **query):
        answers[name] = get(server, path, **query)

    waiting = [
        threading.Thread(
            target=ask, args=("one", "sweeps/cut-off/events"), kwargs={"since": 5, "wait": 50}
        ),
        threading.Thread(target=ask, args=("all", "events"), kwargs={"since": cursor, "wait": 50}),
    ]
    for thread in waiting:
        thread.start()
    sweeps.journal.append("cut-off", 5, [RetryDue(6.0, "t0001")])
    for thread in waiting:
        thread.join(40)
    assert [event["seq"] for event in answers["one"]["events"]] == [6]
    assert answers["one"]["events"] == answers["all"]["events"]


def test_a_stream_has_all_events_and_ends_with_the_sweep(sweeps, server):
    recorded_home.replay(sweeps, "v1-pbt", "copies")
    response = server.get("sweeps/copies/events", headers=STREAM)
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, end = sent(response.text)
    listed = get(server, "sweeps/copies/events")["events"]
    assert [json.loads(event["data"]) for event in events] == listed
    assert [int(event["id"]) for event in events] == [event["seq"] for event in listed]
    assert [event["event"] for event in events] == [event["kind"] for event in listed]
    assert end["event"] == "end"
    assert json.loads(end["data"]) == {"sweep": "copies", "next": listed[-1]["seq"]}
    again = server.get("sweeps/copies/events", headers={**STREAM, "Last-Event-ID": "40"})
    assert sent(again.text) == [*events[40:], end]
    assert server.get("sweeps/copies/events?since=40", headers=STREAM).text == again.text


@pytest.mark.parametrize("path", ["/sweeps/quiet/events?since=9", "/events?since=now"])
def test_a_quiet_stream_and_a_wait_end_with_their_token(sweeps, monkeypatch, path):
    api.create(sweeps, make_spec(), "quiet")
    monkeypatch.setattr(routes, "CHECK_S", -1.0)
    monkeypatch.setattr(routes, "LOOK_S", 0.01)
    header, tokens = bearer(sweeps, "ann", "read"), Tokens(sweeps.journal.store)
    client, looks = call(sweeps, config_of({})), []
    feed = client.app.state.service.feed
    ask = routes.run_in_threadpool

    async def look(function, *given):
        if function in (feed.page, routes._read):
            looks.append(function)
            if len(looks) % 10 == 3:
                for token in tokens.all():
                    tokens.revoke(token.id, time.time())
            feed.closing = len(looks) % 10 == 9  # a stream that outlives its token ends here
        return await ask(function, *given)

    monkeypatch.setattr(routes, "run_in_threadpool", look)
    cut = client.get(path, headers={**header, **STREAM})
    assert (cut.status_code, cut.text) == (200, "")
    assert len(looks) == 3
    looks.clear()
    header = bearer(sweeps, "bob", "read")
    late = client.get(f"{path}&wait=50", headers=header)
    assert late.status_code == 401


def test_a_deleted_sweep_ends_its_streams(sweeps, service, server):
    api.create(sweeps, make_spec(), "gone")
    got = []
    listener = threading.Thread(
        target=lambda: got.append(server.get("sweeps/gone/events", headers=STREAM))
    )
    listener.start()
    until(lambda: service.feed.listeners)
    sweeps.journal.remove("gone")
    listener.join(40)
    assert [event["event"] for event in sent(got[0].text)] == ["end"]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("sweeps/one/events", {"since": "-1"}),
        ("sweeps/one/events", {"since": f"{1 << 63}"}),
        ("sweeps/one/events", {"wait": "nan"}),
        ("sweeps/one/events", {"limit": "0"}),
        ("events", {"since": "x"}),
        ("events", {"since": routes.to_cursor([0, 0, 1 << 63])}),
        ("events", {"since": routes.to_cursor([0, 0])}),
    ],
)
def test_a_query_that_means_nothing_is_refused(sweeps, server, path, query):
    api.create(sweeps, make_spec(), "one")
    assert server.get(path, params=query).status_code == 400
