"""Reading a sweep runs nobody's code in the server, and leaves no more memory behind each time."""

import gc
import sys

import psutil
import pytest
import recorded_home
import served
from fastapi.testclient import TestClient
from simulated_sweeps import make_spec

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Decided, Ended, Finished
from hposvc.journal.journal import SweepRow
from hposvc.server.app import create_app
from hposvc.server.service import Service

ADDRESS = "http://127.0.0.1:8900/api/v1/"
MARK = "hposvc_read_by_a_server"
HOSTILE = f"""
import builtins
builtins.{MARK} = True
from dataclasses import dataclass
from hposvc.schedulers.fifo import Fifo

@dataclass(frozen=True)
class Scheduler(Fifo):
    eta = 3

def curve(params, step):
    return {{"loss": 1.0}}, 1.0
"""


@pytest.mark.full
def test_no_answer_runs_code_of_a_user(tmp_path):
    """The spec names a scheduler and a curve of its own, in its own folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "hostile_plug_ins.py").write_text(HOSTILE)
    sweeps = api.Sweeps.open(tmp_path / "home")
    spec = specs.dump(make_spec())
    spec |= {"folder": f"{folder}", "scheduler": {"type": "hostile_plug_ins:Scheduler"}}
    spec["engine"] = {**spec["engine"], "curve": "hostile_plug_ins:curve"}
    assert sweeps.journal.create(SweepRow("hostile", "h", "p", 1.0, spec, {}))
    recorded_home.begin(sweeps, "hostile")
    # The best trial of an ended sweep waits at a rung: whether it has rungs, the scheduler says.
    end = [
        Decided(6.0, "t0001", 1, 2, "pause", "rung"),
        Ended(7.0, 1, "t0001"),
        Finished(8.0, "COMPLETED", "trials"),
    ]
    sweeps.journal.append("hostile", 5, end)
    before = [*sys.path]
    with (
        served.without_user_code(),
        TestClient(create_app(Service(sweeps)), ADDRESS) as server,
    ):
        schema = server.get("http://127.0.0.1:8900/openapi.json").json()
        asked = 0
        for path, operations in schema["paths"].items():
            if "get" in operations and not path.endswith("/events"):
                url = path.replace("{id}", "hostile").replace("{t}", "t0001")
                answer = server.get(f"http://127.0.0.1:8900{url}")
                assert answer.status_code < 500
                asked += answer.status_code == 200
        assert asked > 10
        assert server.get("sweeps/hostile/events").json()["next"] == 8
        assert "t0001" in server.get("sweeps/hostile/best").json()["warning"]
    assert "hostile_plug_ins" not in sys.modules
    assert sys.path == before


@pytest.mark.full
def test_memory_is_bounded_over_many_looks_at_more_sweeps_than_it_holds(tmp_path):
    sweeps = api.Sweeps.open(tmp_path / "home")
    for number in range(60):
        recorded_home.reported_events(sweeps, f"sweep-{number:03}", 200)
    service = Service(sweeps)
    service.folded.most_events = 6_000  # some twenty of these sweeps
    memory = []
    with TestClient(create_app(service), ADDRESS) as server:
        for look in range(400):
            sweep = f"sweep-{look * 7 % 60:03}"
            assert server.get(f"sweeps/{sweep}").json()["seq"] == 200
            server.get(f"sweeps/{sweep}/events", params={"limit": 50})
            assert service.folded.events <= 6_000
            if look % 80 == 79:
                gc.collect()
                memory.append(psutil.Process().memory_info().rss)
    assert memory[-1] - memory[0] < 20e6, memory
