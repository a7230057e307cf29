"""A test cluster on this machine: a head and worker nodes, each a real raylet.

Every node has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), so that nodes have
distinct addresses as on real clusters, and its own folder for Ray's files. A file in the home
records the started processes; `down` ends these and nothing else. Linux only.
"""

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cluster.dashboard import Dashboard
from cluster.jobs import JobsError
from cluster.node import (
    Node,
    Options,
    clean_environment,
    free_ports,
    head_options,
    last_error,
    start,
    worker_options,
)
from cluster.processes import Process, end, family
from cluster.tokens import TOKEN, make_token

STATE, LOCK = "cluster.json", "cluster.lock"
MARK = "HPOSVC_CLUSTER"  # an environment variable that marks a cluster's processes
START_S = 180.0  # for all nodes to be up; it takes 5 to 10 on an idle machine
STARTS = 3  # a node of Ray gives itself up after 30 s, which a busy machine may need
GRACE_S = 6.0  # for nodes to end by themselves; they need 2 to 5
PATIENCE_S = 20.0  # for the others to be gone after SIGKILL
POLL_S = 0.2


class ClusterError(Exception):
    """The cluster did not start, or did not stop."""

    exit_code = 5  # of the command line: out of reach


class _NodeEndedError(ClusterError):
    """A node ended by itself while the cluster came up."""


@dataclass(frozen=True)
class Shape:
    """The nodes of a cluster and their resources."""

    nodes: int  # workers, without the head
    cpus: float = 1.0  # of each worker
    gpus: int = 0  # of each worker; workers share no GPU
    head_cpus: float = 0.0  # for trials; jobs run on the head anyway


def share_of_cores(nodes: int) -> float:
    """Return the CPUs of each worker if they share the machine's cores evenly; at least 1.

    Raises:
        ClusterError: this machine can't have several nodes.
    """
    _check_platform()
    return float(max(1, len(os.sched_getaffinity(0)) // nodes))


@dataclass(frozen=True)
class Local:
    """A cluster started on this machine."""

    id: str
    folder: str  # Ray's files and the nodes' logs; removed with the cluster
    token: str  # path of the file
    dashboard: str  # http://host:port
    address: str = ""  # of the head, for drivers; empty until the head is up
    nodes: tuple[Node, ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables with which a driver, or Ray's own commands, reach the cluster."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self.token,
        }

    def describe(self) -> dict[str, object]:
        """Describe the cluster for people and programs."""
        return {
            "dashboard": self.dashboard,
            "address": self.address,
            "environment": self.environment(),
            "started_nodes": [
                {"name": node.name, "host": node.host, "pid": node.process.pid}
                for node in self.nodes
            ],
        }

    def ask(self) -> Dashboard:
        """Return a client of the dashboard, with the token."""
        return Dashboard(self.dashboard, Path(self.token).read_text().strip())

    @property
    def mark(self) -> str:
        """The entry NAME=VALUE in the environment of the cluster's processes."""
        return f"{MARK}={self.id}"


def find(home: Path) -> Local | None:
    """Return the cluster of this home, if any of its processes is alive."""
    cluster = _read_state(home)
    heads = [] if cluster is None else [node.process for node in cluster.nodes]
    return cluster if cluster is not None and family(heads, cluster.mark) else None


def up(home: Path, shape: Shape) -> tuple[Local, bool]:
    """Start a cluster, unless this home has one; also return whether it was started now.

    Raises:
        ClusterError: the cluster did not start; nothing is left of it.
    """
    _check_platform()
    with _locked(home):
        running = find(home)
        if running is not None:
            return running, False
        _remove_leftovers(home)
        for _ in range(STARTS - 1):
            with suppress(_NodeEndedError):
                return _come_up(home, shape), True
        return _come_up(home, shape), True


def _come_up(home: Path, shape: Shape) -> Local:
    """Start all nodes and wait for them; where that fails, nothing is left."""
    cluster = _prepare(home)
    try:
        cluster = _start(home, cluster, shape)
        _await_nodes(cluster, shape.nodes + 1)
    except BaseException as error:
        hint = last_error(Path(cluster.folder))
        _end(home, find(home) or cluster)
        if isinstance(error, (JobsError, OSError, _NodeEndedError)):
            kind = _NodeEndedError if isinstance(error, _NodeEndedError) else ClusterError
            raise kind(f"the cluster did not come up: {error}{hint}") from error
        raise
    return cluster


def _check_platform() -> None:
    if sys.platform != "linux":
        raise ClusterError("several nodes on one machine need Linux; `hposvc run` needs none")


def down(home: Path) -> Local | None:
    """Stop this home's cluster with all its processes, and return it; None if there is none.

    Raises:
        ClusterError: some processes do not end.
    """
    if not (home / STATE).exists():
        return None  # without creating the home
    with _locked(home):
        cluster = find(home)
        if cluster is not None:
            _end(home, cluster)
        _remove_leftovers(home)
        return cluster


def _read_state(home: Path) -> Local | None:
    try:
        data = json.loads((home / STATE).read_text())
    except FileNotFoundError:
        return None
    nodes = data.pop("nodes")
    return Local(
        **data,
        nodes=tuple(Node(node["name"], node["host"], Process(**node["process"])) for node in nodes),
    )


def _write_state(home: Path, cluster: Local) -> None:
    draft = home / f"{STATE}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(cluster), indent=2))
    draft.rename(home / STATE)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock for starting and stopping the home's cluster."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prepare(home: Path) -> Local:
    token = home / "ray" / TOKEN  # shared with the machine's own Ray
    token.parent.mkdir(exist_ok=True)
    make_token(token)
    folder = tempfile.mkdtemp(prefix="hposvc-cluster-")  # short: paths of sockets are limited
    name = Path(folder).name.removeprefix("hposvc-cluster-")
    (port,) = free_ports(1)
    return Local(name, folder, str(token), f"http://127.0.0.1:{port}")


def _start(home: Path, cluster: Local, shape: Shape) -> Local:
    """Start the head, then the workers; each is recorded at once, so that `down` finds it."""
    port = cluster.dashboard.rpartition(":")[2]
    head = head_options(port, shape.head_cpus)
    cluster = _add_node(home, cluster, *head)
    cluster = replace(cluster, address=_await_address(cluster))
    for number in range(shape.nodes):
        worker = worker_options(cluster.address, number, shape.cpus, shape.gpus)
        cluster = _add_node(home, cluster, *worker)
    return cluster


def _add_node(
    home: Path, cluster: Local, options: Options, environment: Mapping[str, str]
) -> Local:
    mark, _, value = cluster.mark.partition("=")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": cluster.token}
    # Processes that change their title would otherwise overwrite their environment and the mark.
    no_title = {"SPT_NOENV": "1"}
    full_environment = {**clean_environment(), **token, mark: value, **no_title, **environment}
    node = start(len(cluster.nodes), Path(cluster.folder), options, full_environment)
    extended = replace(cluster, nodes=(*cluster.nodes, node))
    _write_state(home, extended)
    return extended


def _await_address(cluster: Local) -> str:
    """Return the head's address, which it writes to its folder once it is up."""
    file = Path(cluster.folder, "head", "ray_current_cluster")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if file.exists() and (address := file.read_text().strip()):
            return address
        _check_alive(cluster)
        time.sleep(POLL_S)
    raise TimeoutError(f"the head is not up after {START_S:g} s")


def _await_nodes(cluster: Local, wanted: int) -> None:
    """Wait until all nodes are up and jobs can be submitted."""
    deadline = time.monotonic() + START_S
    alive, dashboard = 0, cluster.ask()
    problem = f"after {START_S:g} s the dashboard is not up"
    while time.monotonic() < deadline:
        _check_alive(cluster)
        try:
            alive = sum(node["state"] == "ALIVE" for node in dashboard.nodes())
            if alive == wanted:
                dashboard.jobs()  # raises until jobs can be submitted
                return
            problem = f"after {START_S:g} s there are {alive} nodes of {wanted}"
        except JobsError as error:
            problem = f"after {START_S:g} s: {error}"
        time.sleep(POLL_S)
    raise TimeoutError(problem)


def _check_alive(cluster: Local) -> None:
    for node in cluster.nodes:
        if not node.process.alive:
            raise _NodeEndedError(f"{node.name} has ended")


def _end(home: Path, cluster: Local) -> None:
    heads = [node.process for node in cluster.nodes]
    remaining = end(heads, cluster.mark, GRACE_S, PATIENCE_S)
    if remaining:
        pids = ", ".join(str(process.pid) for process in remaining)
        raise ClusterError(f"these processes of the cluster do not end: {pids}")
    _delete_files(home, cluster)


def _remove_leftovers(home: Path) -> None:
    """Remove files left by a cluster that ended by itself, for example at a reboot."""
    cluster = _read_state(home)
    if cluster is not None:
        _delete_files(home, cluster)


def _delete_files(home: Path, cluster: Local) -> None:
    shutil.rmtree(cluster.folder, ignore_errors=True)
    (home / STATE).unlink(missing_ok=True)
