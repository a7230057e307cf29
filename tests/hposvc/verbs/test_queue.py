"""`hposvc queue`: who has how many slots, and who waits for what, here and on a server."""

from dataclasses import asdict

import command_line
import pytest
from fastapi.testclient import TestClient
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.journal import claims, supervision
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import SweepWait
from hposvc.queue.claim import Account, Claim, Held
from hposvc.server import config
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.verbs.queue import queue

WAIT = SweepWait("1 GPU", 7.0, ("busy", "secret"), 99.0)


def claim(sweep, **values):
    return Claim(sweep, "default", "ann", "demo", since=5.0, needs={"GPU": 1.0}, **values)


@pytest.fixture
def shared(sweeps):
    """Two sweeps of a cluster, one of which waits, and one that waits for a driver."""
    for name, project in (
        ("busy", "demo"),
        ("idle", "demo"),
        ("late", "demo"),
        ("secret", "other"),
    ):
        api.create(sweeps, make_spec(project=project), name)
    store, held = sweeps.journal.store, (Held("busy/slot-1", {"n1": 1}),)
    busy = claim("busy", wanted=4, held=held, account=Account(9.0, 4.0, 1e12))
    share = {"slots": 2, "due": 1.5, "wait": None, "money": 2.5, "currency": "EUR"}
    for made, told in (
        (busy, {**share, "wait": WAIT.data()}),
        (claim("idle", wanted=1), {**share, "slots": 0, "wait": WAIT.data()}),
        (claim("secret", wanted=1, held=held), share),
    ):
        lease = Lease(store, made.sweep)
        lease.acquire()
        claims.write(lease, "c", asdict(made), told)
    with store.writing() as connection:
        supervision.ask(connection, "late")
    return sweeps


def test_each_sweep_has_a_row_with_what_it_holds_wants_and_waits_for(shared):
    busy, idle, secret, late = queue(shared).sweeps
    assert (busy.sweep, busy.held, busy.wanted, busy.slots) == ("busy", 1, 4, 2)
    assert (busy.due, busy.ahead_s, busy.waiting) == (1.5, 5.0, None)
    assert (idle.sweep, idle.waiting) == ("idle", WAIT)
    assert secret.waiting is None
    assert late.waiting is not None
    assert (late.sweep, late.held, late.waiting.what) == ("late", None, "a driver")


def test_a_sweep_without_a_driver_that_nobody_is_to_start_is_not_listed(shared):
    api.create(shared, make_spec(project="demo"), "gone")
    lease = Lease(shared.journal.store, "gone")
    lease.acquire()
    claims.write(lease, "c", asdict(claim("gone", wanted=1)), {})
    assert "gone" in [row.sweep for row in queue(shared).sweeps]
    lease.release()
    assert "gone" not in [row.sweep for row in queue(shared).sweeps]


def test_the_command_prints_a_table_and_says_who_waits(shared, capfd):
    printed = command_line.run(capfd, "queue", "--home", shared.home.path)
    assert "busy     default   ann    0          1        1 of 4   2       2.50 EUR" in printed.out
    assert "idle is waiting for 1 GPU since" in printed.err
    assert "late is waiting for a driver since" in printed.err


def test_an_empty_queue_is_a_sentence(hposvc):
    assert hposvc("queue").err == "No sweep holds a slot or waits for one.\n"
    assert hposvc("queue", "-o", "json").out == "[]\n"


def test_a_server_shows_only_what_its_caller_sees(shared, capfd):
    rows = command_line.run(capfd, "queue", "-o", "json", "--home", shared.home.path).data
    members = config.Project({"ann": ("read",)})
    service = Service(shared, config=config.Config(projects={"demo": members}))
    with TestClient(create_app(service), "http://127.0.0.1:8900/api/v1/") as client:
        token = client.post("tokens", json={"owner": "ann", "scopes": ["read"]}).json()["token"]
        everything = client.get("queue").json()["sweeps"]
        page = client.get("http://127.0.0.1:8900/sweeps/idle").text
        seen = client.get("queue", headers={"Authorization": f"Bearer {token}"}).json()["sweeps"]
    assert everything == rows
    assert "It waits for 1 GPU, behind <a" in page
    assert "It began to wait <time" in page
    assert "; that may take 0s more." in page
    assert [row["sweep"] for row in seen] == ["busy", "idle", "late"]
    assert seen[1]["waiting"]["ahead"] == ["busy"]
