"""A client that waits for a sweep of a busy server says what it waits for."""

import re
from contextlib import nullcontext

import pytest
from fastapi.testclient import TestClient
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.errors import LeftRunning
from hposvc.journal import supervision
from hposvc.journal.home import Home
from hposvc.journal.lease import Lease
from hposvc.open_sweep import OpenSweep
from hposvc.remote.http import Http
from hposvc.remote.server.connection import ServedSweeps
from hposvc.server.app import create_app
from hposvc.server.service import Service

URL = "http://127.0.0.1:8900"


@pytest.fixture
def server(tmp_path):
    """A server whose only driver works on `first`; `second` and `third` wait for one."""
    sweeps = api.Sweeps.open(tmp_path / "home")
    for name in ("first", "second", "third"):
        api.create(sweeps, make_spec(), name)
        with sweeps.journal.store.writing() as connection:
            supervision.ask(connection, name)
    Lease(sweeps.journal.store, "first").acquire()
    app = create_app(Service(sweeps))
    with TestClient(app, URL) as client:
        yield ServedSweeps(Http(URL, None, client), Home.of(tmp_path / "client", {}))


class Leaves:
    """A listener that leaves with the first message."""

    text = ""

    def on_events(self, state, events):
        pass

    def say(self, text):
        self.text = text
        raise KeyboardInterrupt


def test_who_follows_a_sweep_without_a_driver_is_told_behind_which_it_waits(server):
    listener = Leaves()
    with pytest.raises(LeftRunning):
        server.show("third", lambda sweep: nullcontext([listener]))
    pattern = r"waiting for a driver since \d\d:\d\d:\d\d, behind first, second"
    assert re.fullmatch(pattern, listener.text)


def test_status_counts_the_wait_for_a_driver(server):
    waiting = OpenSweep(server, "second").record()
    assert waiting.waiting is not None
    assert waiting.waiting.ahead == ("first",)
    status = waiting.status()
    assert status.queued_s > 0
    assert status.waiting.ahead == ("first",)
    assert server.status("second")["waiting"]["ahead"] == ["first"]
    assert server.status("second")["queued_s"] > 0
    assert server.status("first")["waiting"] is None
