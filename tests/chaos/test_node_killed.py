"""Two sweeps submitted to a cluster of several nodes, one of which is killed in the middle."""

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import aftermath
import pytest
from terminal import Terminal, kill_node, until

from cluster.dashboard import Dashboard
from hposvc import api
from hposvc.events import Reported

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


@pytest.fixture
def outside(terminal: Terminal, tmp_path: Path) -> Terminal:
    """A terminal outside of the cluster, in the folder of a project."""
    (project := tmp_path / "project").mkdir()
    (project / "train.py").write_text(TRAINABLE)
    for name, scheduler in SCHEDULERS.items():
        spec = {**SPEC, "name": name, "scheduler": scheduler}
        (project / f"{name}.yaml").write_text(json.dumps(spec))
    return Terminal(terminal.home, project)


def status_without_token(url: str) -> int:
    try:
        return int(urllib.request.urlopen(url, timeout=20).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_sweeps_on_a_cluster_survive_the_loss_of_a_node(outside: Terminal):
    """Peers: a node that dies takes the sweep with it, or results that were told already."""
    up = outside.ask("cluster", "up", "--local", "2", "--cpus", "1")
    try:
        _survive(outside, up)
    finally:
        outside.ask("cluster", "down")
    assert not outside.processes()


def points(terminal: Terminal, sweep: str) -> int:
    """Return the number of reports in the sweep's journal."""
    return sum(isinstance(event, Reported) for _, event in terminal.journal.read(sweep))


def _survive(desk: Terminal, up: dict[str, Any]) -> None:
    url = up["dashboard"]
    token = Path(up["environment"]["RAY_AUTH_TOKEN_PATH"]).read_text()
    desk.variables["RAY_AUTH_TOKEN"] = token
    for sweep in SCHEDULERS:
        began = desk.ask("submit", f"{sweep}.yaml", "--address", url, "--id", sweep)
        assert began["sweep"] == sweep
    again = desk.ask("submit", "asha.yaml", "--address", url, "--id", "asha")
    assert again["sweep"] == "asha"
    assert len(api.Sweeps.open(desk.home).journal.sweeps()) == len(SCHEDULERS)  # it is the same
    seen = Dashboard(url, token)
    until(lambda: _ranks(seen, "asha") == {"0", "1"}, "ranks on the dashboard")
    drivers = {"hposvc-server", *SCHEDULERS}
    until(lambda: drivers <= {job["submission_id"] for job in seen.jobs()}, "jobs")
    for path in ("/api/jobs/", "/api/v0/actors", "/api/cluster_status", "/nodes?view=summary"):
        assert status_without_token(f"{url}{path}") == 401, path
    assert status_without_token(f"{url}/api/gcs_healthz") == 200  # says only that Ray is up

    busy = list(SCHEDULERS)
    until(lambda: any(points(desk, sweep) >= 3 for sweep in busy), "a few reports")
    kill_node(up["started_nodes"][2]["pid"])

    def ended(sweep: str) -> bool:
        status = api.load(
            api.Sweeps.open(desk.home), sweep
        ).status()  # the cluster's journal is this one
        return status.state not in ("QUEUED", "RUNNING", "INTERRUPTED")

    for sweep in SCHEDULERS:
        until(lambda sweep=sweep: ended(sweep), f"the end of {sweep}")
        # The journal has ended a moment before the recorder has: the job ends behind both.
        until(lambda sweep=sweep: not _runs(seen, sweep), f"its job's end, {sweep}")
        assert desk.ask("status", sweep)["state"] == "COMPLETED"
        aftermath.check(desk.home, sweep, SPEC["trials"]["max"])
    lives = [
        life
        for trial in api.load(api.Sweeps.open(desk.home), "pbt").state.trials.values()
        for life in trial.segments
    ]
    assert any(life.parent for life in lives), "no trial copied another"
    until(lambda: _dead(seen) == 1, "that Ray knows of the node's end")


def _ranks(seen: Dashboard, sweep: str) -> set[str]:
    actors = seen.get("/api/v0/actors?detail=1", dict)["data"]["result"]["result"]
    names = (str(actor["name"]) for actor in actors)
    found = (re.fullmatch(rf"{sweep}/slot-\d+/rank-(\d)", name) for name in names)
    return {match[1] for match in found if match}


def _dead(seen: Dashboard) -> int:
    return sum(node["state"] == "DEAD" for node in seen.nodes())


def _runs(seen: Dashboard, sweep: str) -> bool:
    jobs = {f"{job['submission_id']}": job["status"] for job in seen.jobs()}
    states = [jobs[name] for name in jobs if name.partition("~")[0] == sweep]
    return any(state in ("PENDING", "RUNNING") for state in states)
