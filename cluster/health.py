"""Health check of a Ray cluster, in a child process: `python -m cluster.health ADDRESS`.

A child can be abandoned after a timeout; a `ray.init` hanging in the caller's own process can't.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from cluster import probes
from cluster.inspection import ask_node, exercise
from cluster.node_health import Issue, NodeHealth, judge, offset, speed_issues, unanswered
from cluster.tokens import TOKEN

ANSWER_S = 90.0  # a cold start takes 5 to 30 seconds
PROBE_S = 60.0  # for all nodes to answer a probe; there are two
TORCH_S = 45.0  # for a node to import torch
CLOCK_TRIES = 3  # the quickest answer gives the best estimate of the clock


@dataclass(frozen=True)
class Answer:
    """A cluster's answer to a health check."""

    works: bool
    text: str  # nodes and resources, or the error
    nodes: tuple[NodeHealth, ...] = ()  # if requested


def ask(address: str, folder: Path, timeout_s: float = ANSWER_S) -> Answer:
    """Check that the cluster runs a task.

    Args:
        address: `local` starts a Ray, and stops it again.
        folder: of the machine's own Ray, with its token.
    """
    return _ask([address], folder, timeout_s)


def ask_nodes(address: str, folder: Path, storage: Path) -> Answer:
    """Check the cluster, and probe each of its nodes.

    Args:
        address: as for `ask`.
        folder: as for `ask`.
        storage: the folder for checkpoints; each node reports the free space there.
    """
    return _ask([address, str(storage)], folder, ANSWER_S + 2 * PROBE_S)


def _ask(arguments: list[str], folder: Path, timeout_s: float) -> Answer:
    token = folder / TOKEN
    # Ray 2.60 reads the path of the token from the environment when it is imported.
    token_variables = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if token.exists() else {}
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster.health", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **token_variables,
                **os.environ,
            },
        )
    except subprocess.TimeoutExpired:
        return Answer(False, f"no answer within {timeout_s:g} s")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Answer(False, lines[-1] if lines else f"the child ended with {done.returncode}")
    reply = json.loads(done.stdout.strip().splitlines()[-1])
    return Answer(True, reply["text"], tuple(map(NodeHealth.from_dict, reply["nodes"])))


def _describe() -> str:
    """Run a task, then describe the nodes and resources."""
    ray.get(ray.remote(num_cpus=0)(lambda: None).remote(), timeout=ANSWER_S)
    alive = [node for node in ray.nodes() if node["Alive"]]
    total = ray.cluster_resources()
    amounts = ", ".join(f"{total.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
    return f"{len(alive)} node{'s' if len(alive) > 1 else ''}, {amounts}"


def _examine_nodes(storage: str) -> list[NodeHealth]:
    """Probe all nodes in parallel, each with a time limit; then compare them with each other."""
    driver_probe = probes.examine(probes.PACKAGES, None, TORCH_S, {})
    sorted_nodes = sorted(ray.nodes(), key=lambda node: str(node["NodeName"]))
    nodes = {node["NodeID"]: node for node in sorted_nodes if node["Alive"]}
    examine_tasks = {
        node_id: ask_node(
            node_id, probes.examine, probes.PACKAGES, probes.TORCH, TORCH_S, {"storage": storage}
        )
        for node_id in nodes
    }
    ray.wait(list(examine_tasks.values()), num_returns=len(examine_tasks), timeout=PROBE_S)
    # Afterwards, since loading torch would take up the cores being timed.
    speed_tasks = {node_id: exercise(node) for node_id, node in nodes.items()}
    ray.wait(list(speed_tasks.values()), num_returns=len(speed_tasks), timeout=PROBE_S)
    answers = {
        node_id: _collect_answers(node_id, examine_tasks[node_id], speed_tasks[node_id])
        for node_id in nodes
    }
    answered = {
        node_id: answer for node_id, answer in answers.items() if not isinstance(answer, str)
    }
    issues_by_node = speed_issues(answered)
    return [
        _node_health(node, driver_probe, answers[node_id], issues_by_node.get(node_id, ()))
        for node_id, node in nodes.items()
    ]


def _collect_answers(node_id: str, answer: Any, timed: Any) -> dict[str, Any] | str:
    """Return a node's answers to both probes, or the reason why there are none."""
    try:
        answers = {**ray.get(answer, timeout=0), "clock": _clock_offset(node_id)}
        speeds = ray.get(timed, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {PROBE_S:g} s"
    except (ray.exceptions.RayError, ImportError) as error:
        return str(error).strip().splitlines()[-1]
    return {**answers, **speeds, "disks": {**answers["disks"], **speeds["disks"]}}


def _node_health(
    node: Mapping[str, Any],
    here: Mapping[str, Any],
    there: Mapping[str, Any] | str,
    behind: tuple[Issue, ...],
) -> NodeHealth:
    name, host = node["NodeName"], node["NodeManagerAddress"]
    if isinstance(there, str):
        return unanswered(name, host, there)
    health = judge(name, host, node["Resources"], here, there)
    return replace(health, troubles=(*health.troubles, *behind))


def _clock_offset(node_id: str) -> tuple[float, float]:
    """Return how far a node's clock is ahead of ours, and the error of that, in seconds."""
    tries = []
    for _ in range(CLOCK_TRIES):
        sent = time.time()
        node_time = ray.get(ask_node(node_id, probes.clock), timeout=PROBE_S)
        tries.append(offset(sent, node_time, time.time()))
    return min(tries, key=lambda estimate: estimate[1])


if __name__ == "__main__":
    ray.init(
        address=sys.argv[1],
        include_dashboard=False if sys.argv[1] == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    nodes = _examine_nodes(sys.argv[2]) if sys.argv[2:] else []
    reply = {"text": _describe(), "nodes": [node.to_dict() for node in nodes]}
    print(json.dumps(reply))  # noqa: T201 - the parent reads the output
    ray.shutdown()
