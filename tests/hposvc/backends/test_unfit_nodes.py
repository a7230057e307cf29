"""Sweeps on a real cluster of two nodes, one of which is unfit or kills its processes.

Peers: such a node gets one trial after the other, and each of them fails there.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from small_disk import small

from cluster import local
from cluster.probes import FULL

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
ROOT = Path(__file__).parents[3]
DEADLINE_S = 280.0
KEPT = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "HPOSVC_DB", "MLFLOW_TRACKING_URI")

TRAINABLE = """
import os, signal, time
from pathlib import Path
import ray

def tells(params, worker):
    for step in worker.steps():
        time.sleep(0.2)
        worker.report(step, {"host": number()})

def dies(params, worker):
    if number() == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    for step in worker.steps():
        time.sleep(0.0 if Path(params["held"]).exists() else 0.5)
        worker.report(step, {"host": number()})

def number():
    return int(ray.util.get_node_ip_address().split(".")[-1])
"""


class Terminal:
    """A user's terminal, with a cluster of two workers; the second has hardly any disk space."""

    def __init__(self, folder: Path, cluster: local.LocalCluster) -> None:
        self.folder, self.home = folder, folder / "home"
        variables = {key: value for key, value in os.environ.items() if key not in KEPT}
        home = {"HPOSVC_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        self.variables = {**variables, **home, **cluster.environment()}
        (folder / "train.py").write_text(TRAINABLE)

    def __call__(self, *words: object):
        """Run a command, and return its JSON output and its messages."""
        done = subprocess.run(
            [sys.executable, "-m", "hposvc", "-o", "json", *map(str, words)],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    def run(self, name: str, function: str, most: int, **sections: object):
        """Run a sweep, and return its trials and its messages."""
        spec = {
            "trainable": f"{self.folder}/train.py:{function}",
            "metric": {"name": "host", "goal": "maximize"},
            "fidelity": {"max": 2},
            "parameters": {"lr": {"min": 0.1, "max": 1.0}},
            "search": "random",
            "trials": {"max": most},
            "storage": str(self.folder),
            "tracking": {"send_to": []},
            **sections,
        }
        (self.folder / "spec.yaml").write_text(json.dumps(spec))
        _, messages = self("run", "spec.yaml", "--id", name)
        return self("trials", name)[0], messages


@pytest.fixture(scope="module")
def hposvc(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    options = local.worker_options
    with (
        tempfile.TemporaryDirectory(
            prefix="hposvc-"
        ) as short,  # otherwise paths of sockets are too long
        small(Path(short) / "d", FULL - 2**20) as disk,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_local_fs_capacity_threshold", "1.0")

        def worker_options(head, number, *rest):
            flags, environment = options(head, number, *rest)
            return ({**flags, "temp-dir": str(disk / "r")} if number else flags), environment

        patch.setattr(local, "worker_options", worker_options)
        cluster, _ = local.up(folder / "home", local.Shape(2))
        try:
            yield Terminal(folder, cluster)
        finally:
            local.down(folder / "home")


def hosts(trials):
    return {trial["metrics"]["host"] for trial in trials}


def held(hposvc):
    return hposvc("cluster", "status")[0]["held"]


def test_nothing_starts_on_a_node_that_is_unfit(hposvc):
    trials, messages = hposvc.run("first", "tells", 3)
    assert [trial["state"] for trial in trials] == ["COMPLETED"] * 3
    # The first worker's address ends with 3, the second's with 4.
    assert hosts(trials) == {3}, messages
    assert "first: node node-2 is unfit: 0.1 GiB free for Ray's files in" in messages
    assert messages.count("nothing new starts there until: hposvc cluster lift node-2") == 1
    assert list(held(hposvc)) == ["node-2"]
    assert "node node-2 is unfit" in held(hposvc)["node-2"]


@pytest.mark.full
def test_one_that_is_lifted_is_not_looked_at_again_but_held_where_slots_die(hposvc):
    """Lifting a quarantine lasts until three slots die on the node while others work."""
    hposvc("cluster", "lift", "node-2")
    path = hposvc.home / "quarantine" / "node-2.txt"
    sections = {"parameters": {"lr": {"min": 0.1, "max": 1.0}, "held": str(path)}}
    trials, messages = hposvc.run("second", "dies", 50, **sections, failure={"infra_retries": 9})
    assert {trial["state"] for trial in trials} == {"COMPLETED"}
    assert hosts(trials) == {3}
    assert sum(trial["attempts"] for trial in trials) == len(trials) + 3
    assert "unfit" not in messages
    assert "slots die on node node-2, 3 in a row before an order was done there" in messages
    assert list(held(hposvc)) == ["node-2"]
    assert "slots die on node node-2" in held(hposvc)["node-2"]
