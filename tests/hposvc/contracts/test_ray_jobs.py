"""Drivers that Ray's users submit themselves, by `ray job submit`; as docs/how-to/ray.md tells."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from cluster import local
from cluster.jobs import Jobs
from hposvc import api
from hposvc.events import Reported

pytestmark = [pytest.mark.ray, pytest.mark.long]

RAY = str(Path(sys.executable).with_name("ray"))
CODE = """
from pathlib import Path
import time
import hposvc

def train(params, worker):
    here = Path(params["go"])
    worker.restore()
    for step in worker.steps():
        while step > 2 and not here.exists():
            time.sleep(0.02)
        folder = worker.scratch()
        (folder / "step").write_text(str(step))
        worker.report(step, {"loss": params["x"] + 1 / step}, folder)

if __name__ == "__main__":
    import sys
    hposvc.Sweep(
        "sweep_code:train",
        parameters={"x": {"min": 0.0, "max": 1.0}, "go": sys.argv[1]},
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"max": 4},
        trials={"max": 3, "parallel": 1},
        search="random",
        tracking={"send_to": []},
    ).run(id="mine", resume=True)
"""
SPEC = {
    "trainable": "sweep_code.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 4},
    "trials": {"max": 3, "parallel": 1},
    "search": "random",
    "tracking": {"send_to": []},
}


class Cluster:
    """A cluster of this machine with one worker, and the home of its jobs."""

    def __init__(self, folder):
        self.folder, self.home, self.code = folder, folder / "jobs", folder / "code"
        self.code.mkdir()
        self.go = folder / "go"
        (self.code / "sweep_code.py").write_text(CODE)
        spec = {**SPEC, "parameters": {"x": {"min": 0.0, "max": 1.0}, "go": str(self.go)}}
        (self.code / "sweep.yaml").write_text(json.dumps(spec))
        self.up()

    def up(self):
        self.cluster, _ = local.up(self.folder / "own", local.Shape(1, 2.0))
        environment = self.cluster.environment()
        self.environment = {**os.environ, **environment, "RAY_ADDRESS": self.cluster.dashboard}
        self.jobs = Jobs.at(self.cluster.dashboard, environment)

    def submit(self, name, *command):
        variables = {"env_vars": {"HPOSVC_HOME": str(self.home), "HPOSVC_REPORT": "off"}}
        words = [*("--no-wait", "--submission-id", name, "--working-dir", str(self.code))]
        words += ["--runtime-env-json", json.dumps(variables), "--", *command]
        self.ray("job", "submit", *words)

    def ray(self, *words):
        done = subprocess.run(
            [RAY, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def state(self):
        return api.load(api.Sweeps.open(self.home), "mine")

    def reported(self):
        """Return the reports of the sweep so far; empty: it has not begun."""
        events = api.Sweeps.open(self.home).journal.read("mine")
        return [(event.trial, event.step) for _, event in events if isinstance(event, Reported)]

    def ended(self, name):
        until(lambda: self.jobs.find(name).ended, f"the end of job {name}", 120)
        return self.jobs.find(name)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        local.down(made.folder / "own")


@pytest.mark.parametrize("form", ["python", "hposvc"])
def test_a_stopped_job_pauses_its_sweep_and_the_next_one_goes_on(cluster, form):
    command = {
        "python": ["python", "sweep_code.py", str(cluster.go)],
        "hposvc": ["hposvc", "run", "sweep.yaml", "--id", "mine", "--resume"],
    }[form]
    cluster.submit("first", *command)
    until(lambda: ("t0001", 2) in cluster.reported(), "two steps", 120)
    until(lambda: "mine: 0 of 3 trials" in cluster.jobs.find("first").message, "progress", 60)
    assert cluster.jobs.find("first").metadata["hposvc.id"] == "mine"
    boards = Path(cluster.cluster.folder).rglob("hposvc_grafana_dashboard.json")
    assert "hposvc sweeps" in next(boards).read_text()
    cluster.submit("beside", *command)  # while a driver is at work
    assert cluster.ended("beside").state == "FAILED"
    assert "a driver is at work on it" in cluster.jobs.log("beside")
    cluster.ray("job", "stop", "first")
    assert cluster.ended("first").state == "STOPPED"
    assert cluster.state().phase == "INTERRUPTED"
    cluster.go.touch()
    cluster.submit("second", *command)
    assert cluster.ended("second").state == "SUCCEEDED", cluster.jobs.log("second")
    assert cluster.state().phase == "COMPLETED"
    steps = cluster.reported()
    assert sorted(steps) == [(f"t000{trial}", step) for trial in (1, 2, 3) for step in (1, 2, 3, 4)]
    assert cluster.jobs.find("second").metadata["hposvc.progress"].startswith("3 of 3 trials")


def test_another_cluster_goes_on_where_the_head_was_lost(cluster):
    command = ["hposvc", "run", "sweep.yaml", "--id", "mine", "--resume"]
    cluster.submit("first", *command)
    until(lambda: ("t0001", 2) in cluster.reported(), "two steps", 120)
    local.down(cluster.folder / "own")
    cluster.go.touch()
    cluster.up()
    cluster.submit("second", *command)
    assert cluster.ended("second").state == "SUCCEEDED", cluster.jobs.log("second")
    steps = cluster.reported()
    assert sorted(steps) == [(f"t000{trial}", step) for trial in (1, 2, 3) for step in (1, 2, 3, 4)]
