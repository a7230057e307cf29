"""Sweeps on a real cluster, whose nodes do not see all of this machine's folders.

Every command runs in its own process: the submitting process is gone while the job runs.
"""

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from remote_cluster import HEAD, WORKER, Remote
from waiting import until

from cluster.jobs import Jobs
from hposvc.remote.cluster_server import LABEL, Identity

ROOT = Path(__file__).parents[3]
SECRET = "hunter-22-never-seen"
ON_A_CLUSTER = (pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600))

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


def stop_server(jobs: Jobs) -> None:
    """Stop the cluster's server, if it has one."""
    for job in jobs.find_all(LABEL):
        if not job.ended:
            jobs.stop(job.id)
    until(lambda: all(job.ended for job in jobs.find_all(LABEL)), "the server's end")


@pytest.fixture
def side(remote: Remote, tmp_path: Path) -> Side:
    """Make a submitting side whose home all nodes see, and a cluster without a server."""
    project = tmp_path / "project"
    (project / "code").mkdir(parents=True)
    (project / "code" / "train.py").write_text(TRAINABLE)
    (project / "code" / "helper.py").write_text(HELPER)
    (project / "filed").write_text(SECRET)
    submitting_side = Side(remote, remote.shared / tmp_path.name, project)
    submitting_side.write()
    stop_server(submitting_side.jobs)
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


def marked(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs the cluster."""
    for mark in ON_A_CLUSTER:
        test = mark(test)
    return test


def test_who_has_the_token_of_the_cluster_trusts_its_server_and_nobody_else(tmp_path: Path):
    identity = Identity.of("token")
    assert identity == Identity.of("token")
    (tmp_path / "cert.pem").write_text(identity.certificate)
    (tmp_path / "key.pem").write_text(identity.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}"
        try:
            assert httpx.head(url, verify=Identity.of("token").trust()).status_code == 200
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.head(url, verify=Identity.of("another").trust())
        finally:
            server.shutdown()
            thread.join()


@marked
def test_a_sweep_runs_there_and_its_secrets_are_nowhere(side: Side):
    side.write(resources={"labels": {"zone": ["b", "c"]}})
    slowly = ("--set", "parameters.pause=0.5")
    begun = json.loads(side.submit(*slowly)[1])
    sweep, server = begun["sweep"], f"ray+{side.remote.dashboard}"
    assert begun["server"] == server
    until(lambda: f"hposvc supervised {sweep}" in commands(), "a driver")
    running = commands()

    code, out, err = side.submit("--wait", *slowly)
    assert code == 0, err
    assert json.loads(out)["state"] == "COMPLETED"
    again = json.loads(side.submit(*slowly)[1])
    assert again == {**begun, "state": "COMPLETED", "operation": again["operation"]}

    there = ("--server", server)
    first, *others = side.json(*there, "trials", sweep)
    assert [first["state"], *(trial["state"] for trial in others)] == ["FAILED", *["COMPLETED"] * 2]
    assert all(trial["metrics"]["seen"] == 1.0 for trial in others)
    assert side.json(*there, "best", sweep)["value"] == min(trial["value"] for trial in others)
    text = side.json(*there, "logs", sweep)[0]["text"]
    assert f"the password is [secret] on {WORKER}" in text
    assert "no access with [secret]" in text
    assert side.json("best", sweep) == side.json(*there, "best", sweep)  # its journal is here

    (serving,) = (job for job in side.jobs.find_all(LABEL) if not job.ended)
    url = f"https://{HEAD}:{serving.metadata['hposvc.port']}/api/v1/me"
    trust = Identity.of(side.remote.token).trust()
    unknown = httpx.get(url, headers={"Host": "hposvc-server"}, verify=trust)
    assert unknown.status_code == 401  # who has an account on the head is nobody yet

    assert SECRET not in running
    assert holders(side.home, SECRET) == []  # the journal, MLflow, logs, checkpoints
    assert holders(side.remote.ray, SECRET) == []  # Ray's own files, jobs' logs
    answers = ("/api/jobs/", "/api/v0/actors?detail=1", "/api/v0/runtime_envs?detail=1")
    assert not [path for path in answers if SECRET in side.remote.get(path)]
    assert SECRET not in side.jobs.log(sweep)

    code, _, err = side.submit(*slowly, "--set", "seed=1", "--id", sweep)
    assert code == 2
    assert "another sweep" in err
    hidden = f"{side.remote.heads}/sweeps"  # of which the worker knows nothing
    code, _, err = side.submit("--wait", "--set", f"storage={hidden}")
    assert code == 2
    assert f"storage: storage {hidden}" in err


@pytest.mark.full
@marked
def test_a_home_that_the_head_does_not_see_is_no_obstacle(apart: Side):
    """The sweep is then in the home of the head, and goes on when server and driver die."""
    server = ("--server", f"ray+{apart.remote.dashboard}")
    code, _, err = apart.run(*server, "ls")
    assert code == 5
    assert "has no server of hposvc" in err
    unending = ("--set", "trials.max=1000", "--id", "away")
    code, _, err = apart.submit(*unending)
    assert code == 0, err
    assert apart.json("ls") == []
    until(lambda: apart.run("-o", "json", *server, "best", "last")[0] == 0, "a value")
    stranger = replace(apart, remote=replace(apart.remote, token="another"))
    code, _, err = stranger.run(*server, "ls")
    assert code == 5
    assert "takes another token" in err

    stop_server(apart.jobs)
    apart.jobs.stop("away")
    assert apart.run(*server, "ls")[0] == 5
    code, _, err = apart.submit(*unending)
    assert code == 0, err
    until(lambda: (job := apart.jobs.find("away~2")) and not job.ended, "another driver")
    apart.json(*server, "stop", "away")
    until(lambda: apart.json(*server, "status", "away")["state"] == "STOPPED", "the end")


SPREAD = """
import sys, ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Bundle
from hposvc.backends.ray.placement import bundles_by_node

ray.init(address=sys.argv[1])
group = placement_group([{"CPU": 0.25}] * 4, strategy="SPREAD")
ray.get(group.ready(), timeout=120)
node = ray.remote(num_cpus=0.25)(ray.util.get_node_ip_address)
ranks = bundles_by_node(placement_group_table(group)["bundles_to_node_id"])
calls = [node.options(scheduling_strategy=Bundle(group, bundle)).remote() for bundle in ranks]
print(*ray.get(calls, timeout=120))
"""


@marked
def test_ranks_are_numbered_node_by_node(side: Side):
    """Ray places the bundles of a SPREAD group on the nodes in turn."""
    environment = {**side.remote.environment(side.home), "RAY_AUTH_MODE": "token"}
    command = [sys.executable, "-c", SPREAD, side.remote.gcs]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    first, second, third, fourth = done.stdout.split()[-4:]
    assert first == second != third == fourth


SCRIPT = """
import argparse, json, pathlib

flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float)
offset = json.loads(pathlib.Path("conf/offset.json").read_text())
print(f"loss={flags.parse_args().lr ** 2 + offset}")
"""


@pytest.mark.full
@marked
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
    best = at_home.json("--server", f"ray+{side.remote.dashboard}", "best", status["sweep"])
    assert 7 < best["value"] < 8.1
