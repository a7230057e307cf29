"""Sweeps as jobs of a real cluster, whose nodes do not see all of this machine's folders.

Every command runs in its own process: the submitting process is gone while the job runs.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from remote_cluster import WORKER, Remote, until

from cluster.jobs import Jobs
from hposvc.journal.database import Store
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal

ROOT = Path(__file__).parents[3]
SECRET = "hunter-22-never-seen"
pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

TRAINABLE = """
import os, sys, time
import ray
import helper

print("imported with", os.environ["PASSWORD"], file=sys.stderr)

def train(params, worker):
    print("the password is", os.environ["PASSWORD"], "on", ray.util.get_node_ip_address())
    same = os.environ["PASSWORD"] == os.environ["FILED"] and os.environ["MODE"] == "test"
    for step in worker.steps():
        time.sleep(params["pause"])
        if params["lr"] == 0.95:
            raise ValueError("no access with " + os.environ["PASSWORD"])
        folder = worker.scratch()
        (folder / "step").write_text(str(step))
        found = {"loss": helper.loss(params, step), "seen": float(same)}
        worker.report(step, found, checkpoint=folder)
"""
HELPER = "def loss(params, step):\n    return params['lr'] / step\n"
SPEC = {
    "version": 1,
    "name": "remote",
    "trainable": "code/train.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}, "pause": 0.1},
    "search": "random",
    "initial": [{"lr": 0.95}, {"lr": 0.5}],
    "trials": {"max": 3},
    "environment": {"env": {"MODE": "test"}, "secrets": ["PASSWORD", {"FILED": "file:filed"}]},
}


@dataclass(frozen=True)
class Side:
    """The submitting side: a home, and a project in which commands run."""

    remote: Remote
    home: Path
    project: Path

    def write(self, **changes: Any) -> Path:
        """Write the project's spec, as JSON, which is YAML too."""
        file = self.project / "sweep.yaml"
        file.write_text(json.dumps({**SPEC, **changes}))
        return file

    def start(self, *words: object, **environment: str) -> "subprocess.Popen[str]":
        given = {**self.remote.environment(self.home), "PASSWORD": SECRET, **environment}
        return subprocess.Popen(
            [sys.executable, "-m", "hposvc", *map(str, words)],
            cwd=self.project,
            env={**given, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, **environment: str) -> tuple[int, str, str]:
        """Run a command to its end, and return exit code, stdout and stderr."""
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def submit(self, *words: object, **environment: str) -> tuple[int, str, str]:
        address = ("--address", self.remote.dashboard)
        return self.run("-o", "json", "submit", "sweep.yaml", *address, *words, **environment)

    def json(self, *words: object) -> Any:
        code, out, err = self.run("-o", "json", *words)
        assert code == 0, err
        return json.loads(out)

    @property
    def jobs(self) -> Jobs:
        return Jobs.at(self.remote.dashboard, {"RAY_AUTH_TOKEN": self.remote.token})

    @property
    def journal(self) -> Journal:
        return Journal(Store(Home.of(self.home, {}).database))


@pytest.fixture
def side(remote: Remote, tmp_path: Path) -> Side:
    """Make a submitting side whose home all nodes see."""
    project = tmp_path / "project"
    (project / "code").mkdir(parents=True)
    (project / "code" / "train.py").write_text(TRAINABLE)
    (project / "code" / "helper.py").write_text(HELPER)
    (project / "filed").write_text(SECRET)
    submitting_side = Side(remote, remote.shared / tmp_path.name, project)
    submitting_side.write()
    return submitting_side


@pytest.fixture
def apart(side: Side) -> Side:
    """Make a submitting side whose home no node sees."""
    if not side.remote.hides:
        pytest.skip("this system permits no mount namespaces")
    return Side(side.remote, side.remote.mine / side.home.name, side.project)


def holders(folder: Path, text: str) -> list[str]:
    """Return the files below a folder that contain a text."""
    paths = []
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Ray deletes some of its own files meanwhile
            if file.is_file() and not file.is_symlink() and text.encode() in file.read_bytes():
                paths.append(str(file))
    return paths


def commands() -> str:
    """Return the command lines of all processes, one a line."""
    return "\n".join(
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    )


def test_a_sweep_runs_there_and_its_secrets_are_nowhere(side: Side):
    side.write(resources={"labels": {"zone": ["b", "c"]}})
    slowly = ("--set", "parameters.pause=0.5")
    begun = json.loads(side.submit(*slowly)[1])
    sweep = begun["sweep"]
    assert begun == {**begun, "job": sweep, "state": "RUNNING", "attached": False}
    running = commands()
    assert f"hposvc drive {sweep}" in running

    code, out, err = side.submit("--wait", *slowly, PASSWORD="")
    assert code == 0, err
    assert json.loads(out)["state"] == "COMPLETED"
    again = json.loads(side.submit(*slowly, "--ephemeral")[1])
    assert again == {**begun, "state": "SUCCEEDED", "attached": True}

    first, *others = side.json("trials", sweep)
    assert [first["state"], *(trial["state"] for trial in others)] == ["FAILED", *["COMPLETED"] * 2]
    assert all(trial["metrics"]["seen"] == 1.0 for trial in others)
    assert side.json("best", sweep)["value"] == min(trial["value"] for trial in others)
    text = side.json("logs", sweep)[0]["text"]
    assert f"the password is [secret] on {WORKER}" in text
    assert "no access with [secret]" in text

    assert SECRET not in running
    assert holders(side.home, SECRET) == []  # the journal, MLflow, logs, checkpoints
    assert holders(side.remote.ray, SECRET) == []  # Ray's own files, jobs' logs
    answers = ("/api/jobs/", "/api/v0/actors?detail=1", "/api/v0/runtime_envs?detail=1")
    assert not [path for path in answers if SECRET in side.remote.get(path)]
    assert SECRET not in side.jobs.log(sweep)


@pytest.mark.full
def test_without_a_journal_in_reach_a_sweep_is_refused_or_lives_on_the_head(apart: Side):
    code, _, err = apart.submit()
    assert code == 5, err
    assert f"journal: it is in {apart.home} of the submitting machine" in err
    assert "HPOSVC_DB" in err
    assert "--ephemeral" in err
    assert apart.json("ls") == []

    unending = ("--set", "parameters.pause=0.1", "--set", "trials.max=1000")
    code, out, err = apart.submit("--ephemeral", *unending)
    assert code == 0, err
    sweep = json.loads(out)["sweep"]
    assert json.loads(apart.submit(*unending)[1])["attached"]
    assert apart.json("ls") == []
    until(lambda: apart.json("best", "last"), "a value")
    assert "the password is [secret]" in apart.json("logs", sweep)[0]["text"]
    assert apart.json("stop", sweep)["driver"] == "alive"
    until(lambda: (job := apart.jobs.find(sweep)) and job.ended, "the job's end")
    assert apart.json("status", sweep[:-2])["state"] == "STOPPED"
    stranger = Side(apart.remote, apart.home / "other", apart.project)
    assert stranger.run("status", sweep)[0] == 4
    assert len(stranger.json("trials", sweep, "--address", apart.remote.dashboard)) > 1


SPREAD = """
import sys, ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Bundle
from hposvc.backends.ray.rank_group import bundles_by_node

ray.init(address=sys.argv[1])
group = placement_group([{"CPU": 0.25}] * 4, strategy="SPREAD")
ray.get(group.ready(), timeout=120)
node = ray.remote(num_cpus=0.25)(ray.util.get_node_ip_address)
ranks = bundles_by_node(placement_group_table(group)["bundles_to_node_id"])
calls = [node.options(scheduling_strategy=Bundle(group, bundle)).remote() for bundle in ranks]
print(*ray.get(calls, timeout=120))
"""


def test_ranks_are_numbered_node_by_node(side: Side):
    """Ray places the bundles of a SPREAD group on the nodes in turn."""
    environment = {**side.remote.environment(side.home), "RAY_AUTH_MODE": "token"}
    command = [sys.executable, "-c", SPREAD, side.remote.gcs]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    first, second, third, fourth = done.stdout.split()[-4:]
    assert first == second != third == fourth


@pytest.mark.full
def test_a_driver_that_was_killed_is_followed_by_another_under_the_same_id(side: Side):
    words = ("--id", "killed", "--set", "trials.max=4", "--set", "parameters.pause=0.7")
    code, _, err = side.submit(*words)
    assert code == 0, err
    until(lambda: side.journal.last("killed") > 8, "some events")
    driver = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [])[1:5] == ["-m", "hposvc", "drive", "killed"]
    )
    os.kill(driver.pid, signal.SIGKILL)
    until(lambda: (job := side.jobs.find("killed")) and job.ended, "the job's end")
    assert side.json("status", "killed")["driver"] == "dead"

    code, _, err = side.submit(*words, "--set", "seed=1")
    assert code == 2
    assert "there is a sweep killed with another spec; give another --id" in err

    code, out, err = side.submit(*words, "--wait")
    assert code == 0, err
    assert "another goes on with it" in err
    status = json.loads(out)
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 4)
    assert side.jobs.find("killed~2") is not None
    steps = [trial["step"] for trial in side.json("trials", "killed") if trial["value"]]
    assert steps == [3] * 3


SCRIPT = """
import argparse, json, pathlib

flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float)
offset = json.loads(pathlib.Path("conf/offset.json").read_text())
print(f"loss={flags.parse_args().lr ** 2 + offset}")
"""


@pytest.mark.full
def test_an_unmodified_script_runs_there_from_a_project_that_holds_the_home(side: Side):
    (side.project / "conf").mkdir()
    (side.project / "conf" / "offset.json").write_text("7")
    (side.project / "script.py").write_text(SCRIPT)
    (side.project / "sweep.yaml").write_text(
        json.dumps(
            {
                "version": 1,
                "command": ["python", "script.py", "${args}"],
                "collect": {"stdout": r"(?P<name>\w+)=(?P<value>\S+)"},
                "metric": {"name": "loss", "goal": "minimize"},
                "parameters": {"lr": {"min": 0.1, "max": 1.0}},
                "trials": {"max": 2},
            }
        )
    )
    at_home = Side(side.remote, side.project / ".home", side.project)
    code, out, err = at_home.submit("--wait")
    assert code == 0, err
    status = json.loads(out)
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 2)
    assert 7 < at_home.json("best", "last")["value"] < 8.1
    again = json.loads(at_home.submit()[1])
    assert (again["sweep"], again["attached"]) == (status["sweep"], True)
