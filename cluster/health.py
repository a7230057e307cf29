"""Whether a Ray cluster works, asked from a process of its own: `python -m cluster.health ADDRESS`.

A child can be given up on; a `ray.init` that hangs in one's own process can't.
"""

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import ray

from cluster.launch import ADDRESS, KEEPER, TOKEN, held

ANSWER_S = 90.0  # a cold start takes 5 to 30 seconds


@dataclass(frozen=True)
class Answer:
    """What a cluster said."""

    works: bool
    text: str  # its nodes and resources, or what went wrong


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
    token = folder / TOKEN
    # Ray 2.60 reads the token's whereabouts from the environment, when it is imported.
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)} if token.exists() else {}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster.health", address],
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
    return Answer(True, done.stdout.strip().splitlines()[-1])


def _describe() -> str:
    """Nodes and resources, once a task has run."""
    ray.get(ray.remote(num_cpus=0)(lambda: None).remote(), timeout=ANSWER_S)
    alive = [node for node in ray.nodes() if node["Alive"]]
    total = ray.cluster_resources()
    amounts = ", ".join(f"{total.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
    return f"{len(alive)} node{'s' if len(alive) > 1 else ''}, {amounts}"


if __name__ == "__main__":
    ray.init(
        address=sys.argv[1],
        include_dashboard=False if sys.argv[1] == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    print(_describe())  # noqa: T201 - this is how the parent hears of it
    ray.shutdown()
