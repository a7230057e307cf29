"""A node of a cluster on this machine: a `ray start --block` and all that it starts. Linux only."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.processes import Process

STORE_BYTES = 100 * 2**20  # of shared memory a node: trials pass messages, not data
# Below the system's ephemeral ports, which Ray's other parts take at random, and above Ray's own.
PORTS = range(20_000, 30_000)

Options = Mapping[str, str | None]  # None: an option that takes no value


@dataclass(frozen=True)
class Node:
    """A node that was started."""

    name: str  # head, node-1, ...
    host: str
    process: Process


def head_options(dashboard_port: str, cpus: float) -> tuple[Options, Mapping[str, str]]:
    """Options of `ray start`, and environment variables."""
    options = {
        **{"head": None, "port": "0", "num-gpus": "0", "num-cpus": f"{cpus:g}"},
        **{"include-dashboard": "true", "dashboard-host": "127.0.0.1"},
        **{"dashboard-port": dashboard_port, "ray-client-server-port": free_port()},
    }
    # The ports of two metrics that have no option; their defaults may be another Ray's.
    environment = {
        name: free_port() for name in ("DASHBOARD_METRIC_PORT", "AUTOSCALER_METRIC_PORT")
    }
    return options, environment


def worker_options(
    head: str, number: int, cpus: float, gpus: int
) -> tuple[Options, Mapping[str, str]]:
    """Options of `ray start`, and environment variables: each worker has GPUs of its own.

    Args:
        head: its address.
        number: of this worker, from 0.
    """
    mine = range(number * gpus, (number + 1) * gpus)
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine))} if mine else {}
    return {"address": head, "num-cpus": f"{cpus:g}", "num-gpus": str(gpus)}, environment


def start(number: int, folder: Path, options: Options, environment: Mapping[str, str]) -> Node:
    """Start a node; it is up when the cluster says so.

    Args:
        number: 0 is the head.
        folder: where its log and its folder for Ray's files go.
        environment: all of it.

    Raises:
        OSError: it ended at once.
    """
    name = f"node-{number}" if number else "head"
    host = f"127.0.0.{number + 2}"  # Ray turns 127.0.0.1 into the machine's outer address
    words: dict[str, str | None] = {
        **{"block": None, "node-name": name, "node-ip-address": host, "disable-usage-stats": None},
        **{"temp-dir": str(folder / name), "object-store-memory": str(STORE_BYTES)},
        # 0: any that is free; the defaults are for one node a machine
        **{"min-worker-port": "0", "max-worker-port": "0", "dashboard-agent-listen-port": "0"},
        **options,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    command += [f"--{key}" if value is None else f"--{key}={value}" for key, value in words.items()]
    with (folder / f"{name}.log").open("w") as log:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for who starts it
            env=dict(environment),
        )
    process = Process.of(started.pid)
    if process is None:
        raise OSError(f"{name} ended at once")
    return Node(name, host, process)


def clean_environment() -> dict[str, str]:
    """Ours, less what leads to another cluster; our packages and programs are found as here."""
    others = ("RAY_ADDRESS", "RAY_AUTH_TOKEN")
    ours = {name: value for name, value in os.environ.items() if name not in others}
    path = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    programs = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return {
        **ours,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PATH": os.pathsep.join(programs),
    }


def last_words(folder: Path) -> str:
    """What a node that ended said."""
    for log in sorted(folder.glob("*.log")):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines and "Error" in lines[-1]:
            return f"; {log.stem}: {lines[-1]}"
    return ""


def free_port() -> str:
    """A port that nobody listens at."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return str(port)
