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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster import probes
from cluster.fitness import Fitness, judge, unanswered
from cluster.launch import ADDRESS, KEEPER, held
from cluster.tokens import TOKEN

ANSWER_S = 90.0  # a cold start takes 5 to 30 seconds
PROBE_S = 60.0  # for all nodes to answer a probe
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
    return _ask([address, str(storage)], folder, ANSWER_S + PROBE_S)


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
    """Probe all nodes at once, each with a time limit; then compare their clocks with ours."""
    cloudpickle.register_pickle_by_value(probes)  # our packages may not be there
    here = probes.examine(probes.PACKAGES, None, TORCH_S, {})
    listed = sorted(ray.nodes(), key=lambda node: str(node["NodeName"]))
    nodes = {node["NodeID"]: node for node in listed if node["Alive"]}
    asked = {}
    for node_id, node in nodes.items():
        # .../session_.../sockets/plasma_store
        temporary = str(Path(node["ObjectStoreSocketName"]).parents[2])
        folders = {"storage": storage, "Ray's files": temporary}
        probe = ray.remote(probes.examine).options(**_pinned(node_id))
        asked[node_id] = probe.remote(probes.PACKAGES, probes.TORCH, TORCH_S, folders)
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=PROBE_S)
    return [_fitness(nodes[node_id], here, asked[node_id]) for node_id in nodes]


def _fitness(node: Mapping[str, Any], here: Mapping[str, Any], answer: Any) -> Fitness:
    name, host = node["NodeName"], node["NodeManagerAddress"]
    try:
        there = ray.get(answer, timeout=0)
        offset_s, error_s = _clock(node["NodeID"])
    except ray.exceptions.GetTimeoutError:
        return unanswered(name, host, f"no answer within {PROBE_S:g} s")
    except (ray.exceptions.RayError, ImportError) as error:
        return unanswered(name, host, str(error).strip().splitlines()[-1])
    return judge(name, host, node["Resources"], here, {**there, "clock": (offset_s, error_s)})


def _clock(node_id: str) -> tuple[float, float]:
    """How far a node's clock is before ours, and how well that is known, in seconds."""
    ask = ray.remote(probes.clock).options(**_pinned(node_id))
    tries = []
    for _ in range(CLOCK_TRIES):
        sent = time.time()
        theirs = ray.get(ask.remote(), timeout=PROBE_S)
        heard = time.time()
        tries.append(((heard - sent) / 2, theirs - (sent + heard) / 2))
    error_s, offset_s = min(tries)
    return offset_s, error_s


def _pinned(node_id: str) -> dict[str, Any]:
    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": where, "max_retries": 0}


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
