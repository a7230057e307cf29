"""Two sweeps submitted to a cluster of several nodes, one of which is killed in the middle."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aftermath
import psutil
import pytest
from terminal import until

from cluster.dashboard import Dashboard
from hposvc import api
from hposvc.events import Reported
from hposvc.journal.home import Home

ROOT = Path(__file__).parents[2]
DEADLINE_S = 600.0
REACH = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
OURS = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "PYTHONPATH")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

TRAINABLE = '''
"""Two ranks that agree on every step."""

import time

import torch
import torch.distributed as dist


def train(params, worker):
    before = worker.restore()
    weight = float((before / "weight").read_text()) if before else 5.0
    for step in worker.steps():
        gradient = torch.tensor(2.0 * weight)
        dist.all_reduce(gradient)
        weight -= params["lr"] * gradient.item() / worker.world_size
        time.sleep(0.1)
        folder = worker.scratch()
        (folder / "weight").write_text(repr(weight))
        worker.report(step, {"loss": abs(weight)}, checkpoint=folder)
'''
SPEC: dict[str, Any] = {
    "trainable": "train.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 9},
    "parameters": {"lr": {"min": 1e-3, "max": 1e-1, "log": True}},
    "search": "random",
    "trials": {"max": 4, "parallel": 1},
    "resources": {"workers": 2, "cpus_per_worker": 0.5, "placement": "spread"},
}
SCHEDULERS: dict[str, Any] = {
    "asha": {"type": "asha"},
    "pbt": {"type": "pbt", "interval": 3, "quantile": 0.5, "mutate": {"lr": 2}},
}


@dataclass(frozen=True)
class Desk:
    """Somebody's terminal, outside of the cluster."""

    home: Path
    project: Path
    variables: dict[str, str]

    def run(self, *words: str) -> Any:
        """What the command prints, as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "hposvc", "-o", "json", *words],
            cwd=self.project,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def points(self, sweep: str) -> int:
        """Reports in the sweep's journal."""
        events = Home.of(self.home, {}).journal().read(sweep)
        return sum(isinstance(event, Reported) for _, event in events)


@pytest.fixture
def desk(tmp_path: Path, empty_mlflow: Path) -> Desk:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "mlflow.db").write_bytes(empty_mlflow.read_bytes())
    (project / "train.py").write_text(TRAINABLE)
    for name, scheduler in SCHEDULERS.items():
        spec = {**SPEC, "name": name, "scheduler": scheduler}
        (project / f"{name}.yaml").write_text(json.dumps(spec))
    kept = {key: value for key, value in os.environ.items() if key not in (*REACH, *OURS)}
    variables = {"HPOSVC_HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return Desk(home, project, {**kept, **variables})


def kill_node(pid: int) -> None:
    """SIGKILL a node with all of its processes: what the loss of a machine looks like."""
    process = psutil.Process(pid)
    for one in (*process.children(recursive=True), process):
        one.kill()


def status_without_token(url: str) -> int:
    try:
        return int(urllib.request.urlopen(url, timeout=20).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_sweeps_on_a_cluster_survive_the_loss_of_a_node(desk: Desk):
    """Peers: a node that dies takes the sweep with it, or results that were told already."""
    up = desk.run("cluster", "up", "--local", "2", "--cpus", "1")
    try:
        _survive(desk, up)
    finally:
        desk.run("cluster", "down")
    left = [process for process in psutil.process_iter() if _belongs(process, str(desk.home))]
    assert not left


def _survive(desk: Desk, up: dict[str, Any]) -> None:
    url = up["dashboard"]
    token = Path(up["environment"]["RAY_AUTH_TOKEN_PATH"]).read_text()
    desk.variables["RAY_AUTH_TOKEN"] = token
    for sweep in SCHEDULERS:
        began = desk.run("submit", f"{sweep}.yaml", "--address", url, "--id", sweep)
        assert began["sweep"] == sweep
    again = desk.run("submit", "asha.yaml", "--address", url, "--id", "asha")
    assert again["sweep"] == "asha"
    assert len(api.Sweeps.open(desk.home).journal.sweeps()) == len(SCHEDULERS)  # it is the same
    seen = Dashboard(url, token)
    until(lambda: _ranks(seen, "asha") == {"0", "1"}, "ranks on the dashboard", DEADLINE_S)
    drivers = {"hposvc-server", *SCHEDULERS}
    until(lambda: drivers <= {job["submission_id"] for job in seen.jobs()}, "jobs", DEADLINE_S)
    for path in ("/api/jobs/", "/api/v0/actors", "/api/cluster_status", "/nodes?view=summary"):
        assert status_without_token(f"{url}{path}") == 401, path
    assert status_without_token(f"{url}/api/gcs_healthz") == 200  # says only that Ray is up

    busy = list(SCHEDULERS)
    until(lambda: any(desk.points(sweep) >= 3 for sweep in busy), "a few reports", DEADLINE_S)
    kill_node(up["started_nodes"][2]["pid"])

    def ended(sweep: str) -> bool:
        status = api.load(
            api.Sweeps.open(desk.home), sweep
        ).status()  # the cluster's journal is this one
        return status["state"] not in ("QUEUED", "RUNNING", "INTERRUPTED")

    for sweep in SCHEDULERS:
        until(lambda sweep=sweep: ended(sweep), f"the end of {sweep}", DEADLINE_S)
        # The journal has ended a moment before the recorder has: the job ends behind both.
        until(lambda sweep=sweep: not _runs(seen, sweep), f"its job's end, {sweep}", DEADLINE_S)
        assert desk.run("status", sweep)["state"] == "COMPLETED"
        aftermath.check(desk.home, sweep, SPEC["trials"]["max"])
    lives = [
        life
        for trial in api.load(api.Sweeps.open(desk.home), "pbt").state.trials.values()
        for life in trial.segments
    ]
    assert any(life.parent for life in lives), "no trial copied another"
    until(lambda: _dead(seen) == 1, "that Ray knows of the node's end", DEADLINE_S)


def _ranks(seen: Dashboard, sweep: str) -> set[str]:
    actors = seen.get("/api/v0/actors?detail=1")["data"]["result"]["result"]
    names = (str(actor["name"]) for actor in actors)
    found = (re.fullmatch(rf"{sweep}/slot-\d+/rank-(\d)", name) for name in names)
    return {match[1] for match in found if match}


def _dead(seen: Dashboard) -> int:
    return sum(node["state"] == "DEAD" for node in seen.nodes())


def _runs(seen: Dashboard, sweep: str) -> bool:
    jobs = {f"{job['submission_id']}": job["status"] for job in seen.jobs()}
    states = [jobs[name] for name in jobs if name.partition("~")[0] == sweep]
    return any(state in ("PENDING", "RUNNING") for state in states)


def _belongs(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get("HPOSVC_HOME") == home
    except psutil.Error:
        return False
