"""`hposvc cluster`: its texts, then two worker nodes, a sweep and `down`."""

import json
import os
import re
import stat
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path

import pytest
from printed import text_of
from rich.console import Group
from waiting import until

from cluster.dashboard import Dashboard
from cluster.jobs import JobsError
from hposvc.verbs.cluster import describe_overview, exports
from hposvc.verbs.doctor import Check, table

NODE = {
    "name": "n1",
    "state": "ALIVE",
    "host": "10.0.0.7",
    "resources": {"CPU": 8.0, "memory": 2.0 * 2**30},
    "used": {"CPU": 3.0},
}


class Started:
    def environment(self):
        return {"RAY_ADDRESS": "10.0.0.7:6379", "RAY_AUTH_TOKEN_PATH": "/my home/token"}


def test_lines_to_copy_are_quoted_and_free_of_another_cluster_s_token(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    lines = exports(Started())
    assert "export RAY_AUTH_TOKEN_PATH='/my home/token'" in lines
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert exports(Started()) == ["unset RAY_AUTH_TOKEN", *lines]


def test_held_nodes_and_checks_are_shown_where_there_are_any():
    overview = {"dashboard": "http://10.0.0.7:8265", "nodes": [NODE], "jobs": []}
    assert len(list(describe_overview({**overview, "held": {}}))) == 3
    check = asdict(Check("n1", "ok", "fit"))
    held = {"n1": "its clock is off"}
    text = text_of(Group(*describe_overview({**overview, "held": held, "health": [check]})))
    assert "clock" in text
    assert "fit" in text


def test_each_check_has_a_row_and_its_remedy_stands_below_it():
    rows = [Check("ray", "ok", "2.60"), Check("disk", "fail", "0 GB left", "free [some]")]
    text = text_of(table(rows))
    assert text.index("2.60") < text.index("0 GB left") < text.index("→ free [some]")
    assert text.count("→") == 1


ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
DEADLINE_S = 120.0
START_S = 500.0  # for a command: `cluster up` starts nodes again that end on a busy machine
OURS = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI")
REACH = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


class Terminal:
    """A home in which commands run, each in its own process."""

    def __init__(self, home, **variables):
        inherited = {key: value for key, value in os.environ.items() if key not in (*OURS, *REACH)}
        self.home = home
        self.environment = {
            **inherited,
            "HPOSVC_HOME": str(home),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
            "RAY_metrics_report_interval_ms": "1000",  # else ten seconds
            **variables,
        }

    def start(self, *arguments, **options):
        command = [sys.executable, "-m", "hposvc", *map(str, arguments)]
        return subprocess.Popen(
            command, env=self.environment, cwd=SUPPORT, stdout=-1, stderr=-1, text=True, **options
        )

    def __call__(self, *arguments, code=0):
        """Run a command to its end, and return its output, read as JSON."""
        process = self.start("-o", "json", *arguments)
        out, err = process.communicate(timeout=START_S)
        assert process.returncode == code, err
        return json.loads(out)


@pytest.fixture(scope="module")
def hposvc(tmp_path_factory):
    terminal = Terminal(tmp_path_factory.mktemp("home"))
    yield terminal
    terminal("cluster", "down")


@pytest.fixture(scope="module")
def cluster(hposvc):
    """Start a cluster, and return the output of `up`."""
    up = hposvc("cluster", "up", "--local", 2, "--cpus", 1)
    assert up["started"]
    return up


def test_up_twice_says_that_it_is_up(hposvc, cluster):
    again = hposvc("cluster", "up", "--local", 2)
    assert again == {**cluster, "started": False}


def test_status_shows_the_nodes_and_what_they_have(hposvc, cluster):
    status = hposvc("cluster", "status")
    assert status["dashboard"] == cluster["dashboard"]
    nodes = [
        (node["name"], node["state"], node["resources"].get("CPU")) for node in status["nodes"]
    ]
    assert nodes == [("head", "ALIVE", None), ("node-1", "ALIVE", 1.0), ("node-2", "ALIVE", 1.0)]
    assert len({node["host"] for node in status["nodes"]}) == 3
    assert status["jobs"] == []


def test_only_who_has_the_token_may_look(cluster):
    file = Path(cluster["environment"]["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Dashboard(cluster["dashboard"], file.read_text()).nodes()
    for token, why in ((None, "wants a token"), ("0" * 64, "takes another token")):
        with pytest.raises(JobsError, match=why):
            Dashboard(cluster["dashboard"], token).nodes()


@pytest.mark.full
def test_a_slow_node_is_left_and_held_until_it_is_lifted(hposvc, cluster, tmp_path):
    """In Ray Tune, two ranks continue at the pace of a throttling node, without a message."""
    spec = {
        "trainable": f"{SUPPORT / 'lopsided.py'}:Throttled",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "fidelity": {"max": 12},
        "parameters": {"lr": 0.1},
        "search": "random",
        "trials": {"max": 1},
        "resources": {"workers": 2, "cpus_per_worker": 0.5, "placement": "spread"},
        "failure": {"straggler": "drain", "preempt_retries": 1, "infra_retries": 0},
        "storage": str(tmp_path),
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    driver = Terminal(hposvc.home, **cluster["environment"], PYTHONPATH=f"{ROOT}:{SUPPORT}")
    running = driver.start("run", tmp_path / "spec.yaml", "--id", "slow-1")
    _, err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, err
    assert "on node node-2 is" in err
    assert "nothing new starts there until: hposvc cluster lift node-2" in err
    [trial] = hposvc("trials", "slow-1")
    assert (trial["state"], trial["step"], trial["attempts"]) == ("COMPLETED", 12, 2)
    assert list(hposvc("cluster", "status")["held"]) == ["node-2"]
    assert hposvc("cluster", "lift", "node-2") == {"node": "node-2"}
    assert hposvc("cluster", "status")["held"] == {}
    assert "held are: none" in driver.start("cluster", "lift", "node-2").communicate()[1]


def test_a_sweep_has_metrics_on_the_endpoint(cluster, sweep):
    seen = Dashboard(cluster["dashboard"], token(cluster))
    expected = {
        ("trials", "COMPLETED"): 1.0,
        ("trials", "RUNNING"): 1.0,
        ("best_value", None): 3.0,
        ("slots_busy", None): 1.0,
        ("orders_total", None): 2.0,
    }
    until(lambda: expected.items() <= (values := metrics(seen, "gate-1")).items() and values)
    before = metrics(seen, "gate-1")[("rank_seconds_total", None)]
    until(lambda: metrics(seen, "gate-1")[("rank_seconds_total", None)] > before)


@pytest.fixture(scope="module")
def sweep(hposvc, cluster, tmp_path_factory):
    """Run a sweep on the cluster: its first trial is done, its second waits for a file."""
    folder = tmp_path_factory.mktemp("sweep")
    spec = {
        "trainable": "gates:waits_for_a_file",
        "project": "tests",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 1},
        "parameters": {"x": {"values": [1, 2]}, "file": str(folder / "go")},
        "search": {"method": "grid"},
        "trials": {"max": 2, "parallel": 1},
        "storage": str(folder),
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    driver = Terminal(hposvc.home, **cluster["environment"], PYTHONPATH=f"{ROOT}:{SUPPORT}")
    running = driver.start("run", folder / "spec.yaml", "--id", "gate-1")
    yield running
    (folder / "go").touch()
    _, err = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 0, err


def token(cluster):
    return Path(cluster["environment"]["RAY_AUTH_TOKEN_PATH"]).read_text()


def metrics(seen, sweep):
    """Return {(name, state): value} of a sweep's metrics, over all nodes."""
    values = {}
    for node in seen.get("/nodes?view=summary", dict)["data"]["summary"]:
        url = f"http://{node['ip']}:{node['raylet']['metricsExportPort']}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        for name, labels, value in re.findall(r"^ray_hposvc_(\w+)\{(.*)\} (\S+)$", text, re.M):
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if pairs["sweep"] == sweep and pairs["project"] == "tests":
                values[name, pairs.get("state")] = float(value)
    return values
