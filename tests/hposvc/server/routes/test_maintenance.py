"""What is mended through a server: MLflow's copy, and the disk."""

import pytest
from fastapi.testclient import TestClient
from served import ADDRESS
from simulated_sweeps import Lab, make_spec
from waiting import until

from hposvc import spec as specs
from hposvc.journal.journal import SweepRow
from hposvc.server.app import create_app
from hposvc.server.config import Config
from hposvc.server.service import Service


@pytest.fixture
def server(sweeps):
    with TestClient(create_app(Service(sweeps, None, Config())), f"{ADDRESS}/api/v1/") as client:
        yield client


def record(sweeps, tmp_path):
    """Record the ended sweep `s`, of which no sink was told."""
    spec = make_spec(trials={"max": 2})
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
