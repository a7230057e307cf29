"""A cluster on this machine for trying things out: a head and worker nodes, each a real raylet.

Every node has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), so that they are told
apart as nodes elsewhere are, and its own folder for Ray's files. What was started stands in a file
of the home; `down` ends that and nothing else. Linux only.
"""

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cluster.dashboard import Dashboard, Silent
from cluster.node import (
    Node,
    Options,
    clean_environment,
    free_port,
    head_options,
    last_words,
    start,
    worker_options,
)
from cluster.processes import Process, end, family
from cluster.tokens import TOKEN, make_token

STATE, LOCK = "cluster.json", "cluster.lock"
MARK = "HPOSVC_CLUSTER"  # an environment variable, by which a cluster's processes are found
START_S = 180.0  # for all nodes to be up; 5 to 10 on an idle machine
GRACE_S = 6.0  # for nodes to end by themselves; they need 2 to 5
PATIENCE_S = 20.0  # for the rest to be gone after SIGKILL
POLL_S = 0.2


class ClusterError(Exception):
    """The cluster did not come up, or did not go."""


@dataclass(frozen=True)
class Shape:
    """What the nodes have."""

    nodes: int  # workers; the head is one more
    cpus: float = 1.0  # of each worker
    gpus: int = 0  # of each worker; each gets GPUs of its own
    head_cpus: float = 0.0  # for trials; jobs run there anyhow


def share_of_cores(nodes: int) -> float:
    """CPUs of each worker if they divide the machine's cores among them; at least one."""
    return float(max(1, len(os.sched_getaffinity(0)) // nodes))


@dataclass(frozen=True)
class Local:
    """A cluster that was started here."""

    id: str
    folder: str  # Ray's files and the nodes' logs; gone with the cluster
    token: str  # the file
    dashboard: str  # http://host:port
    address: str = ""  # of the head, for drivers; none until it is up
    nodes: tuple[Node, ...] = ()

    def environment(self) -> dict[str, str]:
        """What makes a driver, or Ray's own commands, reach it."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self.token,
        }

    def described(self) -> dict[str, object]:
        """What people and programs need to know of it."""
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
        """Its dashboard, with the token."""
        return Dashboard(self.dashboard, Path(self.token).read_text().strip())

    @property
    def mark(self) -> str:
        """What the environment of its processes holds."""
        return f"{MARK}={self.id}"


def find(home: Path) -> Local | None:
    """The cluster of this home, if anything of it lives."""
    found = _read(home)
    heads = [] if found is None else [node.process for node in found.nodes]
    return found if found is not None and family(heads, found.mark) else None


def up(home: Path, shape: Shape) -> tuple[Local, bool]:
    """Start a cluster, unless this home has one; and whether it was started now.

    Raises:
        ClusterError: it did not come up; nothing is left of it.
    """
    if sys.platform != "linux":
        raise ClusterError("several nodes on one machine need Linux; `hposvc run` needs none")
    with _alone(home):
        found = find(home)
        if found is not None:
            return found, False
        _tidy(home)
        cluster = _prepare(home)
        try:
            cluster = _start(home, cluster, shape)
            _await_nodes(cluster, shape.nodes + 1)
        except BaseException as error:
            said = last_words(Path(cluster.folder))
            _end(home, find(home) or cluster)
            if isinstance(error, (Silent, TimeoutError, OSError)):
                raise ClusterError(f"the cluster did not come up: {error}{said}") from error
            raise
        return cluster, True


def down(home: Path) -> Local | None:
    """End this home's cluster with all that it started; None if there is none.

    Raises:
        ClusterError: some of it can't be ended.
    """
    if not (home / STATE).exists():
        return None  # and no home is made for it
    with _alone(home):
        found = find(home)
        if found is not None:
            _end(home, found)
        _tidy(home)
        return found


def _read(home: Path) -> Local | None:
    try:
        data = json.loads((home / STATE).read_text())
    except FileNotFoundError:
        return None
    nodes = data.pop("nodes")
    return Local(
        **data,
        nodes=tuple(Node(node["name"], node["host"], Process(**node["process"])) for node in nodes),
    )


def _write(home: Path, cluster: Local) -> None:
    draft = home / f"{STATE}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(cluster), indent=2))
    draft.rename(home / STATE)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Nobody else starts or ends the home's cluster meanwhile."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prepare(home: Path) -> Local:
    token = home / "ray" / TOKEN  # the same that opens the machine's own Ray
    token.parent.mkdir(exist_ok=True)
    make_token(token)
    folder = tempfile.mkdtemp(prefix="hposvc-cluster-")  # short: paths of sockets are limited
    name = Path(folder).name.removeprefix("hposvc-cluster-")
    return Local(name, folder, str(token), f"http://127.0.0.1:{free_port()}")


def _start(home: Path, cluster: Local, shape: Shape) -> Local:
    """Start the head, then the workers; each is written down at once, for `down` to know of it."""
    port = cluster.dashboard.rpartition(":")[2]
    head = head_options(port, shape.head_cpus)
    cluster = _add(home, cluster, *head)
    cluster = replace(cluster, address=_await_address(cluster))
    for number in range(shape.nodes):
        worker = worker_options(cluster.address, number, shape.cpus, shape.gpus)
        cluster = _add(home, cluster, *worker)
    return cluster


def _add(home: Path, cluster: Local, options: Options, environment: Mapping[str, str]) -> Local:
    mark, _, value = cluster.mark.partition("=")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": cluster.token}
    # Else a process that shows its state as its name overwrites its environment, and the mark.
    kept = {"SPT_NOENV": "1"}
    whole = {**clean_environment(), **token, mark: value, **kept, **environment}
    node = start(len(cluster.nodes), Path(cluster.folder), options, whole)
    grown = replace(cluster, nodes=(*cluster.nodes, node))
    _write(home, grown)
    return grown


def _await_address(cluster: Local) -> str:
    """The head's address, which it leaves in its folder once it is up."""
    file = Path(cluster.folder, "head", "ray_current_cluster")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if file.exists() and (address := file.read_text().strip()):
            return address
        _check(cluster)
        time.sleep(POLL_S)
    raise TimeoutError(f"the head is not up after {START_S:g} s")


def _await_nodes(cluster: Local, wanted: int) -> None:
    """Return when all nodes are there, and jobs can be submitted."""
    deadline = time.monotonic() + START_S
    alive, dashboard = 0, cluster.ask()
    why = f"after {START_S:g} s the dashboard is not up"
    while time.monotonic() < deadline:
        _check(cluster)
        try:
            alive = sum(node["state"] == "ALIVE" for node in dashboard.nodes())
            if alive == wanted and isinstance(dashboard.jobs(), list):
                return
            why = f"after {START_S:g} s there are {alive} nodes of {wanted}"
        except Silent as error:
            why = f"after {START_S:g} s: {error}"
        time.sleep(POLL_S)
    raise TimeoutError(why)


def _check(cluster: Local) -> None:
    for node in cluster.nodes:
        if not node.process.alive:
            raise OSError(f"{node.name} has ended")


def _end(home: Path, cluster: Local) -> None:
    heads = [node.process for node in cluster.nodes]
    left = end(heads, cluster.mark, GRACE_S, PATIENCE_S)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise ClusterError(f"these processes of the cluster do not end: {pids}")
    _forget(home, cluster)


def _tidy(home: Path) -> None:
    """Remove what a cluster left that ended by itself, with the machine for one."""
    past = _read(home)
    if past is not None:
        _forget(home, past)


def _forget(home: Path, cluster: Local) -> None:
    shutil.rmtree(cluster.folder, ignore_errors=True)
    (home / STATE).unlink(missing_ok=True)
