"""A test cluster on this machine: a head and worker nodes, each by `ray start`. Linux only.

Every node has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), so that nodes have
distinct addresses as on real clusters, and its own folder for Ray's files. All processes of a
cluster have a variable with its id in their environment: `down` ends these and nothing else.
"""

import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from cluster.dashboard import Dashboard
from cluster.jobs import JobsError, with_retries
from cluster.processes import end, family
from cluster.tokens import TOKEN, make_token, token_variables

STATE, LOCK = "cluster.json", "cluster.lock"
MARK = "HPOSVC_CLUSTER"  # an environment variable that marks a cluster's processes
START_S = 180.0  # for a node to be up; it takes 5 to 10 on an idle machine
STARTS = 3  # of a node: Ray's ends if its agents need more than 15 s, as on a busy machine
GRACE_S = 6.0  # for nodes to end by themselves; they need 2 to 5
PATIENCE_S = 20.0  # for the others to be gone after SIGKILL
STORE_BYTES = 100 * 2**20  # of shared memory per node: trials pass messages, not data
# Below the system's ephemeral ports, which other parts of Ray take at random, and above Ray's own.
PORTS = range(20_000, 30_000)

Options = Mapping[str, str | None]  # of `ray start`; None: an option without a value


class ClusterError(Exception):
    """The cluster did not start, or did not stop."""

    exit_code = 5  # of the command line: out of reach


@dataclass(frozen=True)
class Shape:
    """The nodes of a cluster and their resources."""

    nodes: int  # workers, without the head
    cpus: float = 1.0  # of each worker
    gpus: int = 0  # of each worker; workers share no GPU
    head_cpus: float = 0.0  # for trials; jobs run on the head anyway


@dataclass(frozen=True)
class Node:
    """A started node."""

    name: str  # head, node-1, ...
    host: str
    pid: int  # of its raylet


@dataclass(frozen=True)
class LocalCluster:
    """A cluster started on this machine."""

    id: str
    folder: str  # Ray's files and the nodes' logs; removed with the cluster
    token: str  # path of the file
    dashboard: str  # http://host:port
    address: str = ""  # of the head, for drivers; empty until the head is up
    nodes: tuple[Node, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables with which a driver, or Ray's own commands, reach the cluster."""
        return {"RAY_ADDRESS": self.address, **token_variables(Path(self.token))}

    def describe(self) -> dict[str, object]:
        """Describe the cluster for people and programs."""
        return {
            "dashboard": self.dashboard,
            "address": self.address,
            "environment": self.environment(),
            "started_nodes": [asdict(node) for node in self.nodes],
        }

    def ask(self) -> Dashboard:
        """Return a client of the dashboard, with the token."""
        return Dashboard(self.dashboard, Path(self.token).read_text().strip())

    @property
    def mark(self) -> str:
        """The entry NAME=VALUE in the environment of the cluster's processes."""
        return f"{MARK}={self.id}"


RECORD = TypeAdapter(LocalCluster)


def share_of_cores(nodes: int) -> float:
    """Return the CPUs of each worker if they share the machine's cores evenly; at least 1.

    Raises:
        ClusterError: this machine can't have several nodes.
    """
    _check_platform()
    return float(max(1, len(os.sched_getaffinity(0)) // nodes))


def find(home: Path) -> LocalCluster | None:
    """Return the cluster of this home, if any of its processes is alive."""
    cluster = _read_state(home)
    return cluster if cluster is not None and family(cluster.mark) else None


def up(home: Path, shape: Shape) -> tuple[LocalCluster, bool]:
    """Start a cluster, unless this home has one; also return whether it was started now.

    Raises:
        ClusterError: the cluster did not start; nothing is left of it.
    """
    _check_platform()
    with _locked(home):
        running = find(home)
        if running is not None:
            return running, False
        _end(home, _read_state(home))  # of one that ended by itself, for example at a reboot
        return _come_up(home, shape), True


def down(home: Path) -> LocalCluster | None:
    """Stop this home's cluster with all its processes, and return it; None if there is none.

    Raises:
        ClusterError: some processes do not end.
    """
    if not (home / STATE).exists():
        return None  # without creating the home
    with _locked(home):
        cluster = find(home)
        _end(home, _read_state(home))
        return cluster


def head_options(dashboard_port: str, client_port: str, cpus: float) -> Options:
    """Return the head's options of `ray start`."""
    return {
        **{"head": None, "port": "0", "num-gpus": "0", "num-cpus": f"{cpus:g}"},
        **{"include-dashboard": "true", "dashboard-host": "127.0.0.1"},
        **{"dashboard-port": dashboard_port, "ray-client-server-port": client_port},
    }


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


def free_ports(number: int) -> list[str]:
    """Return different free ports."""
    ports: set[str] = set()
    while len(ports) < number:
        port = random.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            ports.add(str(port))
    return [*ports]


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


def _check_platform() -> None:
    if sys.platform != "linux":
        raise ClusterError("several nodes on one machine need Linux; `hposvc run` needs none")


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock for starting and stopping the home's cluster."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_state(home: Path) -> LocalCluster | None:
    file = home / STATE
    return RECORD.validate_json(file.read_bytes()) if file.exists() else None


def _write_state(home: Path, cluster: LocalCluster) -> None:
    draft = home / f"{STATE}.{os.getpid()}"
    draft.write_bytes(RECORD.dump_json(cluster, indent=2))
    draft.rename(home / STATE)


def _come_up(home: Path, shape: Shape) -> LocalCluster:
    """Start the head, then the workers; where that fails, nothing is left.

    One at a time: agents of several nodes that start together would be late together.
    """
    token = home / "ray" / TOKEN  # shared with the machine's own Ray
    token.parent.mkdir(exist_ok=True)
    make_token(token)
    folder = Path(tempfile.mkdtemp(prefix="hposvc-cluster-"))  # short: socket paths are limited
    name = folder.name.removeprefix("hposvc-cluster-")
    port, client_port = free_ports(2)
    cluster = LocalCluster(name, str(folder), str(token), f"http://127.0.0.1:{port}")
    _write_state(home, cluster)  # for `down`, if this process is killed
    try:
        cluster = _start_node(cluster, head_options(port, client_port, shape.head_cpus), {})
        address = (folder / "head" / "ray_current_cluster").read_text().strip()
        cluster = replace(cluster, address=address)
        for number in range(shape.nodes):
            options = worker_options(address, number, shape.cpus, shape.gpus)
            cluster = _start_node(cluster, *options)
        with_retries(cluster.ask().jobs)  # jobs can be submitted
        _write_state(home, cluster)
    except BaseException as error:
        _end(home, cluster)
        if isinstance(error, (ClusterError, JobsError, OSError)):
            raise ClusterError(f"the cluster did not come up: {error}") from error
        raise
    return cluster


def _start_node(
    cluster: LocalCluster, options: Options, environment: Mapping[str, str]
) -> LocalCluster:
    """Start a node, and again if it ends; return the cluster with the node once it is up."""
    number, folder = len(cluster.nodes), Path(cluster.folder)
    name = f"node-{number}" if number else "head"
    host = f"127.0.0.{number + 2}"  # Ray turns 127.0.0.1 into the machine's outer address
    all_options: Options = {
        **{"node-name": name, "node-ip-address": host, "disable-usage-stats": None},
        **{"temp-dir": str(folder / name), "object-store-memory": str(STORE_BYTES)},
        # 0: any free port; the defaults suit one node per machine
        **{"min-worker-port": "0", "max-worker-port": "0", "dashboard-agent-listen-port": "0"},
        **options,
    }
    words = [f"--{key}" + ("" if it is None else f"={it}") for key, it in all_options.items()]
    token = token_variables(Path(cluster.token))
    # Processes that change their title would otherwise overwrite their environment and the mark.
    mark = {MARK: cluster.id, "SPT_NOENV": "1"}
    log = folder / f"{name}.log"
    for _ in range(STARTS):
        with log.open("w") as output:
            try:
                subprocess.run(
                    [sys.executable, "-m", "ray.scripts.scripts", "start", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    start_new_session=True,  # Ctrl-C must reach the caller only
                    env={**clean_environment(), **token, **mark, **environment},
                    timeout=START_S,
                )
            except subprocess.TimeoutExpired:
                raise ClusterError(f"after {START_S:g} s {name} is not up") from None
        members = family(cluster.mark)
        for process in members:
            seen = process.info["cmdline"] or ()
            if process.info["name"] == "raylet" and f"--node_ip_address={host}" in seen:
                return replace(cluster, nodes=(*cluster.nodes, Node(name, host, process.pid)))
        if not number and members:
            end(cluster.mark, 0.0, PATIENCE_S)  # the rest of the head
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise ClusterError("; ".join([f"{name} has ended", *last]))


def _end(home: Path, cluster: LocalCluster | None) -> None:
    """End the processes of a cluster that are alive, and remove its files."""
    if cluster is None:
        return
    if remaining := end(cluster.mark, GRACE_S, PATIENCE_S):
        pids = ", ".join(str(process.pid) for process in remaining)
        raise ClusterError(f"these processes of the cluster do not end: {pids}")
    shutil.rmtree(cluster.folder, ignore_errors=True)
    (home / STATE).unlink(missing_ok=True)
