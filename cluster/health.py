"""Health check of a Ray cluster, in a child process: `python -m cluster.health ADDRESS [STORAGE]`.

A child can be abandoned after a timeout; a `ray.init` hanging in the caller's own process can't.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

import ray
from pydantic import TypeAdapter

from cluster.inspection import ANSWER_S, examine_all
from cluster.node_health import NodeHealth
from cluster.own_ray import Unreachable
from cluster.tokens import TOKEN, token_variables

TASK_S = 90.0  # for a task; a cold start takes 5 to 30 seconds
REPLY = TypeAdapter(tuple[str, list[NodeHealth]])  # of the child, as `ask` returns it


def ask(
    address: str, folder: Path, storage: Path | None = None, timeout_s: float = TASK_S
) -> tuple[str, list[NodeHealth]]:
    """Check that the cluster runs a task, and probe each of its nodes if a storage is given.

    Args:
        address: `local` starts a Ray, and stops it again.
        folder: of the machine's own Ray, with its token.
        storage: the folder for checkpoints; each node reports the free space there.
        timeout_s: for the task.

    Returns:
        The cluster's nodes and resources in words, and the probed nodes.

    Raises:
        Unreachable: the cluster does not work.
    """
    words = [address] if storage is None else [address, str(storage)]
    timeout_s += ANSWER_S * (len(words) - 1)
    token = folder / TOKEN
    # Ray 2.60 reads the path of the token from the environment when it is imported.
    variables = token_variables(token) if token.exists() else {}
    python_path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cluster.health", *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={"PYTHONPATH": python_path, **variables, **os.environ},
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"no answer within {timeout_s:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unreachable(lines[-1] if lines else f"the child ended with {done.returncode}")
    return REPLY.validate_json(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    ray.init(
        address=sys.argv[1],
        include_dashboard=False if sys.argv[1] == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    ray.get(ray.remote(num_cpus=0)(lambda: None).remote(), timeout=TASK_S)
    alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda n: n["NodeName"])
    total = ray.cluster_resources()
    amounts = ", ".join(f"{total.get(name, 0.0):g} {name}" for name in ("CPU", "GPU"))
    text = f"{len(alive)} node{'s' if len(alive) > 1 else ''}, {amounts}"
    health = examine_all(alive, sys.argv[2]) if sys.argv[2:] else []
    print(REPLY.dump_json((text, health)).decode())  # noqa: T201 - the parent reads the output
    ray.shutdown()
