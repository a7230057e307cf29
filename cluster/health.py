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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray

from cluster import probes
from cluster.inspection import ask_node, exercise
from cluster.node_health import Issue, NodeHealth, offset, own_issues, speed_issues
from cluster.tokens import TOKEN

ANSWER_S = 90.0  # a cold start takes 5 to 30 seconds
PROBE_S = 60.0  # for all nodes to answer a probe; there are two
TORCH_S = 45.0  # for a node to import torch
CLOCK_TRIES = 3  # the quickest answer gives the best estimate of the clock


@dataclass(frozen=True)
class HealthAnswer:
    """A cluster's answer to a health check."""

    works: bool
    text: str  # nodes and resources, or the error
    nodes: tuple[NodeHealth, ...] = ()  # if requested


def ask(
    address: str, folder: Path, storage: Path | None = None, timeout_s: float = ANSWER_S
) -> HealthAnswer:
    """Check that the cluster runs a task, and probe each of its nodes if a storage is given.

    Args:
        address: `local` starts a Ray, and stops it again.
        folder: of the machine's own Ray, with its token.
        storage: the folder for checkpoints; each node reports the free space there.
        timeout_s: for the task.
    """
    words = [address] if storage is None else [address, str(storage)]
    timeout_s += 2 * PROBE_S * (len(words) - 1)
    token = folder / TOKEN
    # Ray 2.60 reads the path of the token from the environment when it is imported.
    token_variables = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if token.exists() else {}
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster.health", *words],
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
        return HealthAnswer(False, f"no answer within {timeout_s:g} s")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return HealthAnswer(
            False, lines[-1] if lines else f"the child ended with {done.returncode}"
        )
    reply = json.loads(done.stdout.strip().splitlines()[-1])
    nodes = [
        NodeHealth(**{**node, "troubles": tuple(Issue(**issue) for issue in node["troubles"])})
        for node in reply["nodes"]
    ]
    return HealthAnswer(True, reply["text"], tuple(nodes))


def _describe() -> str:
    """Run a task, then describe the nodes and resources."""
    ray.get(ray.remote(num_cpus=0)(lambda: None).remote(), timeout=ANSWER_S)
    alive = [node for node in ray.nodes() if node["Alive"]]
    total = ray.cluster_resources()
    amounts = ", ".join(f"{total.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
    return f"{len(alive)} node{'s' if len(alive) > 1 else ''}, {amounts}"


def _examine_nodes(storage: str) -> list[NodeHealth]:
    """Probe all nodes in parallel, each with a time limit; then compare them with each other."""
    here, folders = probes.describe(probes.PACKAGES), {"storage": storage}
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: str(node["NodeName"]))
    compared = [
        ask_node(
            *(node["NodeID"], probes.compare, here, node["Resources"].get("GPU", 0.0)),
            *(probes.TORCH, TORCH_S, folders),
        )
        for node in nodes
    ]
    ray.wait(compared, num_returns=len(compared), timeout=PROBE_S)
    # Afterwards, since loading torch would take up the cores being timed.
    timed = [exercise(node) for node in nodes]
    ray.wait(timed, num_returns=len(timed), timeout=PROBE_S)
    answers = {
        node["NodeID"]: _collect_answers(node["NodeID"], *references)
        for node, *references in zip(nodes, compared, timed, strict=True)
    }
    slow_parts = speed_issues(
        {node: answer for node, answer in answers.items() if not isinstance(answer, str)}
    )
    return [_judge(node, answers[node["NodeID"]], slow_parts) for node in nodes]


def _collect_answers(node_id: str, compared: Any, timed: Any) -> dict[str, Any] | str:
    """Return a node's answers to both probes, or the reason why there are none."""
    try:
        clock = _clock_offset(node_id)
        versions, speeds = ray.get([compared, timed], timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {PROBE_S:g} s"
    except (ray.exceptions.RayError, ImportError) as error:
        return str(error).strip().splitlines()[-1]
    both = {name: versions[name] + speeds[name] for name in ("problems", "notes")}
    return {**speeds, **both, "clock": clock}


def _judge(
    node: Mapping[str, Any],
    answer: Mapping[str, Any] | str,
    slow_parts: Mapping[str, tuple[Issue, ...]],
) -> NodeHealth:
    name, host = node["NodeName"], node["NodeManagerAddress"]
    if isinstance(answer, str):
        trouble = Issue(answer, "see Ray's logs on that node, or take it out of the cluster", True)
        return NodeHealth(name, host, "does not answer", (trouble,))
    amounts = ", ".join(f"{node['Resources'].get(kind, 0.0):g} {kind}" for kind in ("CPU", "GPU"))
    text = "; ".join((amounts, *answer["notes"], f"clock {answer['clock'][0]:+.2f} s"))
    return NodeHealth(name, host, text, (*own_issues(answer), *slow_parts[node["NodeID"]]))


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
    reply = {"text": _describe(), "nodes": [asdict(node) for node in nodes]}
    print(json.dumps(reply))  # noqa: T201 - the parent reads the output
    ray.shutdown()
