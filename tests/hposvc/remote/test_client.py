"""Following a job over a dashboard that fails now and then."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster.jobs import Jobs
from hposvc.remote import client
from hposvc.remote.job_metadata import LABEL


@pytest.fixture
def dashboard():
    """Start a server that returns the queued answers one after another; None: status 500."""
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
    assert client.wait(jobs, "s-1", shown.append).id == "s-1~2"
    assert shown == ["one", ", two", "three"]
