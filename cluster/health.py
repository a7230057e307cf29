"""Whether a Ray cluster works, asked from a process of its own: `python -m cluster.health ADDRESS`.

A child can be given up on; a `ray.init` that hangs in one's own process can't.
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
from cluster.fitness import Fitness, Trouble, judge, offset, slow, unanswered
from cluster.inspection import ask_node, exercise
from cluster.launch import ADDRESS, KEEPER, held
from cluster.tokens import TOKEN

ANSWER_S = 90.0  # a cold start takes 5 to 30 seconds
PROBE_S = 60.0  # for all nodes to answer a probe, of which there are two
TORCH_S = 45.0  # for a node to import torch
CLOCK_TRIES = 3  # the quickest answer tells the clock best


@dataclass(frozen=True)
class Answer:
    """What a cluster said."""

    works: bool
    text: str  # its nodes and resources, or what went wrong
    nodes: tuple[Fitness, ...] = ()  # if they were asked for


def running(folder: Path) -> str | None:
    """The address of the machine's own Ray that drivers of this home share, if it is up."""
    try:
        address = str(json.loads((folder / ADDRESS).read_text())["address"])
    except OSError:
        return None
    return address if held(folder / KEEPER) else None


def ask(address: str, folder: Path, timeout_s: float = ANSWER_S) -> Answer:
    """Let the cluster run a task.

    Args:
        address: `local` starts a Ray, and ends it.
        folder: of the machine's own Ray, whose token opens it.
    """
    return _ask([address], folder, timeout_s)


def ask_nodes(address: str, folder: Path, storage: Path) -> Answer:
    """Let every node of the cluster say what it is like.

    Args:
        address: as for `ask`.
        folder: as for `ask`.
        storage: where checkpoints are to lie; the room there is asked of every node.
    """
    return _ask([address, str(storage)], folder, ANSWER_S + 2 * PROBE_S)


def _ask(arguments: list[str], folder: Path, timeout_s: float) -> Answer:
    token = folder / TOKEN
    # Ray 2.60 reads the token's whereabouts from the environment, when it is imported.
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if token.exists() else {}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster.health", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **own, **os.environ},
        )
    except subprocess.TimeoutExpired:
        return Answer(False, f"no answer within {timeout_s:g} s")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Answer(False, lines[-1] if lines else f"the child ended with {done.returncode}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return Answer(True, told["text"], tuple(map(Fitness.from_dict, told["nodes"])))


def _describe() -> str:
    """Nodes and resources, once a task has run."""
    ray.get(ray.remote(num_cpus=0)(lambda: None).remote(), timeout=ANSWER_S)
    alive = [node for node in ray.nodes() if node["Alive"]]
    total = ray.cluster_resources()
    amounts = ", ".join(f"{total.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
    return f"{len(alive)} node{'s' if len(alive) > 1 else ''}, {amounts}"


def _examine_nodes(storage: str) -> list[Fitness]:
    """Probe all nodes at once, each with a time limit; then hold them against each other."""
    here = probes.examine(probes.PACKAGES, None, TORCH_S, {})
    listed = sorted(ray.nodes(), key=lambda node: str(node["NodeName"]))
    nodes = {node["NodeID"]: node for node in listed if node["Alive"]}
    asked = {
        node_id: ask_node(
            node_id, probes.examine, probes.PACKAGES, probes.TORCH, TORCH_S, {"storage": storage}
        )
        for node_id in nodes
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=PROBE_S)
    # Afterwards, for what loads torch takes the cores that are timed.
    timed = {node_id: exercise(node) for node_id, node in nodes.items()}
    ray.wait(list(timed.values()), num_returns=len(timed), timeout=PROBE_S)
    found = {node_id: _found(node_id, asked[node_id], timed[node_id]) for node_id in nodes}
    answered = {node_id: there for node_id, there in found.items() if not isinstance(there, str)}
    behind = slow(answered)
    return [
        _fitness(node, here, found[node_id], behind.get(node_id, ()))
        for node_id, node in nodes.items()
    ]


def _found(node_id: str, answer: Any, timed: Any) -> dict[str, Any] | str:
    """What a node answered to both probes; or why it did not."""
    try:
        there = {**ray.get(answer, timeout=0), "clock": _clock(node_id)}
        speeds = ray.get(timed, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {PROBE_S:g} s"
    except (ray.exceptions.RayError, ImportError) as error:
        return str(error).strip().splitlines()[-1]
    return {**there, **speeds, "disks": {**there["disks"], **speeds["disks"]}}


def _fitness(
    node: Mapping[str, Any],
    here: Mapping[str, Any],
    there: Mapping[str, Any] | str,
    behind: tuple[Trouble, ...],
) -> Fitness:
    name, host = node["NodeName"], node["NodeManagerAddress"]
    if isinstance(there, str):
        return unanswered(name, host, there)
    found = judge(name, host, node["Resources"], here, there)
    return replace(found, troubles=(*found.troubles, *behind))


def _clock(node_id: str) -> tuple[float, float]:
    """How far a node's clock is before ours, and how well that is known, in seconds."""
    tries = []
    for _ in range(CLOCK_TRIES):
        sent = time.time()
        theirs = ray.get(ask_node(node_id, probes.clock), timeout=PROBE_S)
        tries.append(offset(sent, theirs, time.time()))
    return min(tries, key=lambda one: one[1])


if __name__ == "__main__":
    ray.init(
        address=sys.argv[1],
        include_dashboard=False if sys.argv[1] == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    found = _examine_nodes(sys.argv[2]) if sys.argv[2:] else []
    told = {"text": _describe(), "nodes": [each.to_dict() for each in found]}
    print(json.dumps(told))  # noqa: T201 - this is how the parent hears of it
    ray.shutdown()
