"""What is mended through a server: MLflow's copy, the disk, and what nobody was told."""

import pytest
from fastapi.testclient import TestClient
from receivers import receiver
from served import ADDRESS, errors
from simulated_sweeps import Lab, make_spec
from waiting import until

from hposvc import spec as specs
from hposvc.journal import submitted_secrets
from hposvc.journal.journal import SweepRow
from hposvc.server.app import create_app
from hposvc.server.config import Config, NotifyRules
from hposvc.server.service import Service
from hposvc.tracking.addresses import ALLOWED


@pytest.fixture
def server(sweeps):
    with serving(sweeps) as client:
        yield client


def serving(sweeps, config=None):
    return TestClient(create_app(Service(sweeps, None, config or Config())), f"{ADDRESS}/api/v1/")


def record(sweeps, tmp_path, **sections):
    """Record the ended sweep `s`, of which no sink was told."""
    spec = make_spec(trials={"max": 2}, **sections)
    sweeps.journal.create(SweepRow("s", "s", "p", 0.0, specs.dump(spec), {}))
    Lab(sweeps.journal, tmp_path).run(spec)


def result(server, begun, verb):
    """Return the result of an operation, once it is done."""
    assert begun.status_code == 202
    place = f"operations/{begun.json()['operation']}"
    until(lambda: server.get(place).json()["state"] != "running", verb)
    done = server.get(place).json()
    assert (done["verb"], done["state"], done["errors"]) == (verb, "done", [])
    return done["result"]


@pytest.mark.full
def test_mlflow_is_compared_without_a_change_and_repaired_as_an_operation(sweeps, server, tmp_path):
    record(sweeps, tmp_path)
    before = server.get("sweeps/s/doctor").json()
    assert (before["stance"], before["agrees"], before["runs"]) == ("compared", False, 0)
    assert {each["run"] for each in before["differences"]} == {"", "t0001", "t0002"}
    assert server.get("operations").json()["operations"] == []
    after = result(server, server.post("sweeps/s/doctor"), "doctor")
    assert (after["stance"], after["agrees"], after["runs"]) == ("mended", True, 3)


def leave_a_checkpoint(sweeps):
    """Leave a checkpoint that the sweep `s` does not know, and return its folder."""
    left = sweeps.home.path / "sweeps" / "s" / "checkpoints" / "t0001" / "1-1"
    left.mkdir(parents=True)
    (left / "state.bin").write_bytes(b"1234")
    return left


@pytest.mark.parametrize("place", ["gc", "sweeps/s/gc"])
def test_garbage_is_shown_and_then_deleted_by_an_operation(sweeps, server, tmp_path, place):
    record(sweeps, tmp_path)
    left = leave_a_checkpoint(sweeps)
    shown = result(server, server.post(place, json={"dry_run": True}), "gc")
    assert [(each["path"], each["size"], each["freed"]) for each in shown["files"]] == [
        (f"{left}", 4, False)
    ]
    assert left.exists()
    freed = result(server, server.post(place, json={"compact": True}), "gc")
    whats = {each["what"]: each["freed"] for each in freed["files"]}
    assert (whats, freed["failures"]) == ({"checkpoint": True, "journal": True}, [])
    assert not left.exists()
    assert server.get("sweeps/s").json()["state"] == "COMPLETED"


SECRET = {"notify": [{"webhook": "${HOOK}"}], "environment": {"secrets": ["HOOK"]}}


def test_notifications_are_sent_with_the_secrets_of_the_sweep(
    sweeps, server, tmp_path, monkeypatch
):
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    record(sweeps, tmp_path, **SECRET)
    (missing,) = result(server, server.post("sweeps/s/notify"), "notify")["results"]
    assert (missing["sent"], missing["answer"][:15]) == (False, "HOOK is not set")
    with receiver() as room, receiver() as elsewhere:
        submitted_secrets.adopt(
            sweeps.home, "s", submitted_secrets.write_draft(sweeps.home, {"HOOK": room.url})
        )
        body = {"secrets": {"HOOK": elsewhere.url}}  # counts only where the server has none
        (sent,) = result(server, server.post("sweeps/s/notify", json=body), "notify")["results"]
        assert (sent["sent"], sent["channel"]) == (True, "webhook ${HOOK}")
        assert (len(room.bodies), len(elsewhere.bodies)) == (1, 0)
        assert room.url not in server.get("operations").text
    assert result(server, server.post("sweeps/s/notify"), "notify") == {"results": []}


def test_a_secret_that_the_sweep_no_longer_has_may_come_with_the_request(
    sweeps, server, tmp_path, monkeypatch
):
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    record(sweeps, tmp_path, **SECRET)
    with receiver() as room:
        body = {"secrets": {"HOOK": room.url}}
        (sent,) = result(server, server.post("sweeps/s/notify", json=body), "notify")["results"]
        assert (sent["sent"], len(room.bodies)) == (True, 1)
    refused = server.post("sweeps/s/notify", json={"secrets": {ALLOWED: "private"}})
    assert refused.status_code == 400
    assert errors(refused)[0]["key"] == "secrets"


def test_notifications_reach_no_more_than_the_operator_allows(sweeps, tmp_path, monkeypatch):
    monkeypatch.setenv(ALLOWED, "127.0.0.1")
    with (
        receiver() as room,
        serving(sweeps, Config(notify=NotifyRules(hosts=("a.example",)))) as server,
    ):
        record(sweeps, tmp_path, notify=[{"webhook": room.url}])
        (refused,) = result(server, server.post("sweeps/s/notify"), "notify")["results"]
        assert not refused["sent"]
        assert room.received == []


def test_the_servers_own_variables_are_no_address(sweeps, server, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVERS_OWN", "http://127.0.0.1:9/its-secret")
    record(sweeps, tmp_path, notify=[{"webhook": "${SERVERS_OWN}"}])
    (refused,) = result(server, server.post("sweeps/s/notify"), "notify")["results"]
    assert refused["answer"].startswith("SERVERS_OWN is not set")
