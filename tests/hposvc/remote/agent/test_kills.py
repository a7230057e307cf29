"""Agents, drivers and the server are killed at random; no result is lost, and none counts twice."""

import os
import random
import signal
import subprocess
import sys

import psutil
import pytest
import real_server
from real_server import Served, ending_drivers, environment
from waiting import until

from hposvc import api
from hposvc.events import Reported
from hposvc.journal.lease import holder

pytestmark = pytest.mark.long
SPEC = {
    **real_server.SPEC,
    "name": "killed",
    "fidelity": {"max": 9},
    "trials": {"max": 12},
    "engine": {"type": "agents", "lease": "3s"},
    "failure": {"infra_retries": 50},
}
KILLS = 8


def start_agent(home, url, name):
    log = (home / f"{name}.log").open("ab")
    command = [sys.executable, "-m", "hposvc", "agent", "s", "--name", name, "--grace", "5"]
    variables = environment(home, HPOSVC_SERVER=url)
    return subprocess.Popen(command, env=variables, stderr=log, stdout=log)


@pytest.fixture
def home(tmp_path):
    with ending_drivers(tmp_path / "home"):
        yield tmp_path / "home"


@pytest.mark.parametrize("seed", [0])
def test_kills_of_agents_drivers_and_the_server_lose_nothing(home, seed):
    rng = random.Random(seed)
    server = Served(home)
    agents = {}
    try:
        server.submit(SPEC, "s")
        journal = api.Sweeps.open(home).journal
        for strike in range(KILLS):
            for name in ("a", "b", "c"):
                if name not in agents or agents[name].poll() is not None:
                    agents[name] = start_agent(home, server.url, name)
            seen = journal.last("s")
            until(lambda seen=seen: journal.last("s") > seen + 3)
            victim = agents[rng.choice("abc")]
            victim.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
            if strike == KILLS // 3:
                place = holder(journal.store, "s").place
                os.kill(int(place.rpartition(":")[2]), signal.SIGKILL)
            if strike == KILLS // 2:
                server = Served(home, server.kill())
            victim.wait(30)
        until(lambda: server.get("sweeps/s")["state"] == "COMPLETED")
        for process in agents.values():
            process.wait(60)
        rows = server.trials("s")
    finally:
        for process in agents.values():
            process.kill()
            process.wait()
        server.kill()
    assert {row["state"] for row in rows} <= {"COMPLETED", "STOPPED"}
    assert len(rows) == 12
    events = [event for _, event in journal.read("s")]
    reported = [(event.trial, event.step) for event in events if isinstance(event, Reported)]
    assert len(reported) >= 12 + 9
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline", "environ"])
        if "hposvc.backends.process.rank_process" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("HPOSVC_HOME") == f"{home}"
    ]
    assert not left, "ranks end with their agent"
