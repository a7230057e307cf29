"""A request to steer is recorded with its caller, and what needs a driver gets one."""

import threading
from contextlib import suppress
from functools import partial

import pytest
import served
from fastapi.testclient import TestClient
from waiting import until

from hposvc import api
from hposvc.errors import Busy, SpecError
from hposvc.events import Finished
from hposvc.journal import operations, submissions, submitted_secrets, supervision
from hposvc.journal.lease import Lease
from hposvc.server import steering, supervised
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.server.supervisor import Supervisor

API = "/api/v1/sweeps"
SPEC = {
    **served.SPEC,
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
}


class ThreadDrivers:
    """Drives sweeps in threads of the test."""

    def __init__(self, sweeps):
        self.sweeps, self.threads = sweeps, {}

    def start(self, row):
        thread = threading.Thread(target=self._drive, args=(row.id,), daemon=True)
        self.threads[row.id] = thread
        thread.start()

    def running(self):
        return {sweep for sweep, thread in self.threads.items() if thread.is_alive()}

    def _drive(self, sweep):
        with suppress(Busy, SpecError):
            supervised.drive(self.sweeps, sweep, api.unwatched, None)


@pytest.fixture(autouse=True)
def _untracked(monkeypatch):
    monkeypatch.setattr("hposvc.tracking.mlflow_server.MOST_SIMULATED", 0)


@pytest.fixture
def client(sweeps):
    """A server that starts no drivers."""
    with TestClient(create_app(Service(sweeps)), base_url=served.ADDRESS) as client:
        yield client


@pytest.fixture
def driving(sweeps):
    """A server that starts drivers."""
    supervisor = Supervisor(sweeps, ThreadDrivers(sweeps), 2)
    with TestClient(create_app(Service(sweeps, supervisor)), base_url=served.ADDRESS) as client:
        yield client


def create(sweeps, name="s", **changes):
    return api.create(sweeps, api.validate({**SPEC, **changes}, {}), name)


def requests(sweeps, name="s"):
    return [request for _, request in sweeps.journal.requests(name)]


def supervising(sweeps, name="s"):
    return supervision.find(sweeps.journal.store, name)


def await_rest(sweeps, name="s"):
    until(lambda: supervising(sweeps, name) is None, f"{name} at rest")


def operation(client, answer):
    return client.get(f"/api/v1/operations/{answer.json()['operation']}").json()


def test_a_request_to_a_driver_at_work_names_its_caller(sweeps, client):
    create(sweeps)
    Lease(sweeps.journal.store, "s").acquire()
    answer = client.post(f"{API}/s/stop", json={"drain": True})
    assert answer.status_code == 202
    body = answer.json()
    assert (body["sweep"], body["state"], body["trial"]) == ("s", "QUEUED", None)
    assert body["receipt"]["driver"] == "alive"
    (asked,) = requests(sweeps)
    done = operation(client, answer)
    assert (asked.verb, asked.by) == ("drain", done["by"])
    assert (done["verb"], done["state"], done["sweep"]) == ("drain", "done", "s")
    assert done["result"] == body["receipt"]
    assert supervising(sweeps) is None


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_a_sweep_without_a_driver_is_ended_by_one_that_is_started_for_it(sweeps, driving, verb):
    create(sweeps)
    answer = driving.post(f"{API}/s/{verb}")
    assert answer.status_code == 202
    await_rest(sweeps)
    ended = "PAUSED" if verb == "pause" else "STOPPED"
    assert api.load(sweeps, "s").phase == ended
    until(lambda: operation(driving, answer)["state"] == "done", "done")
    assert operation(driving, answer)["result"]["state"] == ended
    assert not api.load(sweeps, "s").state.trials


@pytest.fixture
def over(sweeps, client, monkeypatch):
    """A submitted sweep that is over, so that its secret is forgotten."""
    monkeypatch.delenv("TOKEN", raising=False)
    spec = {**served.SPEC, "environment": {"secrets": ["TOKEN"]}}
    body = {"spec": spec, "id": "s", "secrets": {"TOKEN": "hush"}}
    assert client.post(API, json=body).status_code == 202
    sweeps.journal.append("s", 0, [Finished(0.0, "COMPLETED", "trials")])
    forget = partial(submitted_secrets.delete, sweeps.home, "s")
    supervision.rest(sweeps.journal.store, supervising(sweeps), forget)
    assert secrets(sweeps) == {}


def secrets(sweeps):
    return submitted_secrets.read(sweeps.home, "s")


MORE = {"trials": 1}


@pytest.mark.parametrize(("way", "body"), [("extend", MORE), ("retry", {})])
def test_an_ended_sweep_whose_secrets_nobody_has_is_refused_at_once(
    sweeps, client, over, way, body
):
    answer = client.post(f"{API}/s/{way}", json=body)
    assert answer.status_code == 400
    (error,) = served.errors(answer)
    assert (error["code"], error["key"]) == ("spec_error", "environment.secrets")
    assert "TOKEN has no value" in error["message"]
    assert "export it" in error["message"]
    assert "send it in `secrets`" in error["message"]
    assert not requests(sweeps)
    assert supervising(sweeps) is None


def test_a_sweep_that_goes_on_keeps_the_secrets_that_came_again(sweeps, client, over):
    unknown = {"secrets": {"TOKEN": "again", "OTHER": "hush"}}
    answer = client.post(f"{API}/s/extend", json={**MORE, **unknown})
    assert served.errors(answer)[0]["message"].startswith(
        "environment.secrets: does not name OTHER"
    )
    assert (requests(sweeps), secrets(sweeps)) == ([], {})
    answer = client.post(f"{API}/s/extend", json={**MORE, "secrets": {"TOKEN": "again"}})
    assert answer.status_code == 202
    assert "again" not in answer.text + client.get("/api/v1/operations").text
    assert secrets(sweeps) == {"TOKEN": "again"}
    assert supervising(sweeps)
    assert client.post(f"{API}/s/extend", json=MORE).status_code == 202  # it has them now
    assert secrets(sweeps) == {"TOKEN": "again"}


def test_a_resumed_sweep_needs_its_secrets_only_to_train(sweeps, client, over):
    assert client.post(f"{API}/s/resume").status_code == 202  # only its sinks are brought up
    sweeps.journal.request("s", "extend", changes={"trials.max": 3})
    assert client.post(f"{API}/s/resume").status_code == 400
    body = {"secrets": {"TOKEN": "again"}}
    assert client.post(f"{API}/s/resume", json=body).status_code == 202
    assert secrets(sweeps) == {"TOKEN": "again"}


def test_only_its_submitter_replaces_a_sweeps_secrets(sweeps, over):
    row = sweeps.journal.find("s")
    service = Service(sweeps)
    for by, value, then in (("eve", "eve's", "eve's"), ("bob", "bob's", "eve's")):
        steering.steer(service, by, row, "extend", None, {"trials.max": 9}, {"TOKEN": value})
        assert secrets(sweeps) == {"TOKEN": then}
    owner = submissions.find(sweeps.journal.store, "s").by
    steering.resume(service, owner, row, False, {"TOKEN": "mine"})
    assert secrets(sweeps) == {"TOKEN": "mine"}


def test_a_request_that_no_driver_takes_yet_outlives_the_server(sweeps, client, monkeypatch):
    """Once it is answered, the request, its operation and that a driver is needed are on record."""
    monkeypatch.setattr(steering, "PATIENCE_S", 0.2)
    create(sweeps)
    answer = client.post(f"{API}/s/stop")
    assert answer.json()["receipt"] is None
    assert [request.verb for request in requests(sweeps)] == ["stop"]
    assert supervising(sweeps).ends
    operations.end_orphans(sweeps.journal.store)  # as the next server begins
    assert operation(client, answer)["state"] == "running"
    supervised.drive(sweeps, "s", api.unwatched, None)
    found = operation(client, answer)
    assert (found["state"], found["result"]["state"]) == ("done", "STOPPED")


def test_a_proposal_is_answered_and_queued_once_with_its_caller(sweeps, client):
    create(sweeps, trials={"max": 4, "parallel": 2})
    asked = client.post(f"{API}/s/propose", json={"set": {"x": 2.0}}).json()
    assert (asked["state"], asked["result"]["queued"]) == ("done", False)
    assert requests(sweeps) == []
    for queued in (True, False):
        answer = client.post(f"{API}/s/propose", json={"set": {"x": 2.0}, "run": True})
        assert answer.status_code == 202
        assert answer.json()["result"]["queued"] == queued
    (request,) = requests(sweeps)
    assert (request.verb, request.changes) == ("propose", {"x": 2.0})
    assert request.by == asked["by"]
    wrong = client.post(f"{API}/s/propose", json={"set": {"y": 2.0}})
    assert wrong.status_code == 400
    assert "y: is no parameter" in wrong.json()["errors"][0]["message"]


@pytest.mark.parametrize("state", ["COMPLETED", "INTERRUPTED"])
def test_a_trial_is_excluded_and_included_by_a_driver_that_does_nothing_else(
    sweeps, driving, state
):
    """An interrupted sweep hears of it from its next driver: nobody asked for it to go on."""
    row = create(sweeps)
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read("s")]
    if state == "INTERRUPTED":
        create(sweeps, "cut")
        sweeps.journal.append("cut", 0, events[: len(events) // 2])
    name = "s" if state == "COMPLETED" else "cut"
    trial = f"{API}/{name}/trials/t0001"
    wrong = driving.post(f"{trial}/exclude", json={"because": ""})
    assert wrong.status_code == 400
    answer = driving.post(f"{trial}/exclude", json={"because": "wrong data"})
    assert (answer.status_code, answer.json()["copies"]) == (202, [])
    await_rest(sweeps, name)
    if state == "INTERRUPTED":
        assert [request.verb for request in requests(sweeps, name)] == ["exclude"]
        assert len(list(sweeps.journal.read(name))) == len(events) // 2
        api.drive(sweeps, sweeps.find(name))
    shown = driving.get(trial).json()
    assert (shown["reason"], shown["detail"]) == ("excluded", "wrong data")
    assert driving.get(f"{API}/{name}/best").json()["best"]["trial"] != "t0001"
    assert driving.post(f"{trial}/include").status_code == 202
    await_rest(sweeps, name)
    assert driving.get(trial).json()["reason"] != "excluded"
