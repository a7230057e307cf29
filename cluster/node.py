"""Nodes of a cluster on this machine: each a `ray start --block` with its children. Linux only."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.processes import Process

STORE_BYTES = 100 * 2**20  # of shared memory per node: trials pass messages, not data
# Below the system's ephemeral ports, which other parts of Ray take at random, and above Ray's own.
PORTS = range(20_000, 30_000)

Options = Mapping[str, str | None]  # None: an option without a value


@dataclass(frozen=True)
class Node:
    """A started node."""

    name: str  # head, node-1, ...
    host: str
    process: Process


def head_options(dashboard_port: str, cpus: float) -> tuple[Options, Mapping[str, str]]:
    """Return the head's options of `ray start`, and its environment variables."""
    client, dashboard_metrics, autoscaler_metrics = free_ports(3, besides=dashboard_port)
    options = {
        **{"head": None, "port": "0", "num-gpus": "0", "num-cpus": f"{cpus:g}"},
        **{"include-dashboard": "true", "dashboard-host": "127.0.0.1"},
        **{"dashboard-port": dashboard_port, "ray-client-server-port": client},
    }
    # Two metrics ports have no option, and another Ray may use their defaults.
    environment = {
        "DASHBOARD_METRIC_PORT": dashboard_metrics,
        "AUTOSCALER_METRIC_PORT": autoscaler_metrics,
    }
    return options, environment


def worker_options(
    head: str, number: int, cpus: float, gpus: int
) -> tuple[Options, Mapping[str, str]]:
    """Return a worker's options of `ray start`, and its environment variables with its GPUs.

    Args:
        head: the head's address.
        number: of this worker, from 0.
    """
    gpu_numbers = range(number * gpus, (number + 1) * gpus)
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpu_numbers))} if gpu_numbers else {}
    return {"address": head, "num-cpus": f"{cpus:g}", "num-gpus": str(gpus)}, environment


def start(number: int, folder: Path, options: Options, environment: Mapping[str, str]) -> Node:
    """Start a node, without waiting until the cluster has registered it.

    Args:
        number: 0 for the head.
        folder: for the node's log and its folder of Ray's files.
        environment: the complete environment of the process.

    Raises:
        OSError: the process ended at once.
    """
    name = f"node-{number}" if number else "head"
    host = f"127.0.0.{number + 2}"  # Ray turns 127.0.0.1 into the machine's outer address
    all_options: dict[str, str | None] = {
        **{"block": None, "node-name": name, "node-ip-address": host, "disable-usage-stats": None},
        **{"temp-dir": str(folder / name), "object-store-memory": str(STORE_BYTES)},
        # 0: any free port; the defaults suit one node per machine
        **{"min-worker-port": "0", "max-worker-port": "0", "dashboard-agent-listen-port": "0"},
        **options,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    command += [
        f"--{key}" if value is None else f"--{key}={value}" for key, value in all_options.items()
    ]
    with (folder / f"{name}.log").open("w") as log:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,  # Ctrl-C must reach the caller only
            env=dict(environment),
        )
    process = Process.of(started.pid)
    if process is None:
        raise OSError(f"{name} ended at once")
    return Node(name, host, process)


def clean_environment() -> dict[str, str]:
    """Return our environment without other clusters' addresses, with our packages and programs."""
    removed = ("RAY_ADDRESS", "RAY_AUTH_TOKEN")
    kept_variables = {name: value for name, value in os.environ.items() if name not in removed}
    path = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    programs = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return {
        **kept_variables,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PATH": os.pathsep.join(programs),
    }


def last_error(folder: Path) -> str:
    """Return the last error in the nodes' logs as a suffix for messages; empty: there is none."""
    for log in sorted(folder.glob("*.log")):
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines and "Error" in lines[-1]:
            return f"; {log.stem}: {lines[-1]}"
    return ""


def free_ports(number: int, besides: str = "") -> list[str]:
    """Return different free ports, none of which is `besides`."""
    ports: list[str] = []
    while len(ports) < number:
        port = random.choice(PORTS)
        if str(port) in (*ports, besides):
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            ports.append(str(port))
    return ports
