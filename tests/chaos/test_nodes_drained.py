"""Spot nodes that announce their end: a sweep of three slots loses two of its three nodes."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from terminal import Terminal, kill_node, until

from hposvc import api
from hposvc.events import Failed, Reported
from hposvc.journal import claims
from hposvc.queue.claim import Claim

pytestmark = [
    pytest.mark.ray,
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

TRAINABLE = """
import time

def train(params, worker):
    before = worker.restore()
    for step in worker.steps():
        time.sleep(0.5)
        folder = worker.scratch()
        (folder / "step").write_text(f"{step}")
        worker.report(step, {"loss": params["x"]}, checkpoint=folder)
"""
SPEC: dict[str, Any] = {
    "trainable": "train.py:train",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 60},
    "parameters": {"x": {"min": 0.0, "max": 1.0}},
    "search": "random",
    "trials": {"max": 3, "parallel": 3},
    "resources": {"workers": 1, "cpus_per_worker": 1},
    "tracking": {"send_to": []},
}
HOST = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(*(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == sys.argv[2]))
"""
NOTICE_S = 60.0  # between the announcement and the end of a node


def test_a_sweep_outlives_nodes_that_announce_their_end(terminal: Terminal, tmp_path: Path):
    (project := tmp_path / "project").mkdir()
    (project / "train.py").write_text(TRAINABLE)
    (project / "spec.yaml").write_text(json.dumps(SPEC))
    desk = Terminal(terminal.home, project)
    up = desk.ask("cluster", "up", "--local", "3", "--cpus", "1")
    try:
        desk.variables.update(up["environment"])
        run = desk.start("run", "spec.yaml", "--id", "spot", "--address", up["address"])
        for left in (2, 1):
            until(lambda left=left: len(held(desk)) > left, f"more slots; {run.stderr.read_text()}")
            leave(desk, up, left)
        assert run.end()[0] == 0
    finally:
        desk.ask("cluster", "down")
    events = [event for _, event in desk.journal.read("spot")]
    steps = Counter((event.trial, event.step) for event in events if isinstance(event, Reported))
    assert len(steps) == SPEC["trials"]["max"] * SPEC["fidelity"]["max"]
    assert {*steps.values()} == {1}, "each step has a checkpoint, so none is trained twice"
    assert {event.cause for event in events if isinstance(event, Failed)} <= {"preempt"}
    assert api.load(api.Sweeps.open(desk.home), "spot").status().state == "COMPLETED"


def leave(desk: Terminal, up: dict[str, Any], left: int) -> None:
    """Have a node with a slot announce its end, wait until the slot has left, and end the node."""
    node = sorted({name for nodes in held(desk) for name in nodes})[0]
    host = host_of(desk, up, node)
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
    limit = ["--deadline-remaining-seconds", f"{NOTICE_S:.0f}"]
    ray(desk, "drain-node", "--address", up["address"], "--node-id", node, *reason, *limit)
    until(lambda: all(node not in nodes for nodes in held(desk)), "that its slot leaves it")
    until(lambda: len(held(desk)) <= left, "that the claim has the others alone")
    [process] = [started["pid"] for started in up["started_nodes"] if started["host"] == host]
    with suppress(psutil.NoSuchProcess):  # Ray itself ends a drained node that has nothing to do
        kill_node(process)


def held(desk: Terminal) -> list[dict[str, int]]:
    """Return the nodes of each slot that the sweep's claim has."""
    rows = [Claim.of(row.claim) for row in claims.read(desk.journal.store) if row.live]
    return [dict(slot.nodes) for claim in rows for slot in claim.held]


def host_of(desk: Terminal, up: dict[str, Any], node: str) -> str:
    """Return the address of a node, by which `cluster up` tells its nodes apart."""
    return desk_python(desk, "-c", HOST, up["address"], node).split()[-1]


def ray(desk: Terminal, *words: str) -> None:
    desk_python(desk, "-m", "ray.scripts.scripts", *words)


def desk_python(desk: Terminal, *words: str) -> str:
    command = desk.start_python(*words)
    try:
        code = command.process.wait(120)
    except subprocess.TimeoutExpired:
        command.process.kill()
        raise
    assert code == 0, command.stderr.read_text()
    return command.stdout.read_text()
