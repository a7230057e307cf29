"""Following a job over a dashboard that comes and goes; what an answer leaves out."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster.jobs import Jobs
from hposvc import api
from hposvc.events import Ended, Order, Ordered, Proposed
from hposvc.remote import following
from hposvc.remote.labels import LABEL

SPEC = {
    "name": "s",
    "trainable": "trainables.zoo.digits:DigitsCNN",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "trials": {"max": 2},
    "environment": {"secrets": ["PASSWORD"]},
}


@pytest.fixture
def dashboard():
    """A server that gives these answers one after another; None: it refuses."""
    answers: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.pop(0)
            self.send_response(500 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Jobs(f"http://127.0.0.1:{server.server_port}"), answers
        server.shutdown()


def job(name: str, status: str) -> dict[str, object]:
    return {"submission_id": name, "status": status, "metadata": {LABEL: "s-1"}}


def test_waiting_outlives_a_failed_call_and_shows_the_next_job_from_its_start(dashboard):
    jobs, answers = dashboard
    first, second = job("s-1", "FAILED"), job("s-1~2", "SUCCEEDED")
    running = {**first, "status": "RUNNING"}
    answers += [None, [running], {"logs": "one"}, [running], None, {"logs": "one, two"}]
    answers += [[second, first], {"logs": "three"}]
    shown: list[str] = []
    assert following.wait(jobs, "s-1", shown.append).id == "s-1~2"
    assert shown == ["one", ", two", "three"]


def test_what_may_hold_a_secret_stays_where_it_is(home):
    sweeps = api.Sweeps(home, home.journal())
    row = api.create(sweeps, api.validate(SPEC, {}), "s-1")
    orders = [Order(number, "t0001", {"lr": 0.5}, None, 1, 1, ()) for number in (1, 2)]
    events = [
        Proposed(0.0, "t0001", {"lr": 0.5}, {}, 1, ()),
        Ordered(0.0, orders[0]),
        Ended(1.0, 1, "t0001"),
        Ordered(1.0, orders[1]),
    ]
    sweeps.journal.append(row.id, 0, events)
    folder = home.folder(row.id, None) / "logs" / "t0001"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number}-0.log").write_text("hunter")
    found = following.read_discreetly(sweeps, row.id, api.logs(sweeps, row.id, "t0001"))
    assert [entry["order"] for entry in found] == [1, 2]
    assert found[0]["text"] == "hunter"
    assert "its order has not ended" in found[1]["text"]
