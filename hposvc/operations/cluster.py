"""The Ray cluster of a home on this machine: start it, and look at it."""

from dataclasses import asdict
from typing import Any

from cluster import local, quarantine
from cluster.dashboard import Dashboard
from cluster.jobs import find_token
from cluster.local import LocalCluster
from hposvc.journal.home import Home
from hposvc.operations.doctor import examine_cluster

REMEDY = "see the nodes' logs: `hposvc cluster down`, then `up`, begins anew"


def up(
    home: Home, nodes: int, cpus: float | None = None, gpus: int = 0, head_cpus: float = 0.0
) -> tuple[LocalCluster, bool]:
    """Start a head and worker nodes; return the cluster, and whether it was started just now.

    Args:
        nodes: how many worker nodes.
        cpus: of each worker node; None: this machine's cores are divided among them.
        gpus: of each worker node.
        head_cpus: of the head, for trials.
    """
    shape = local.Shape(nodes, cpus or local.share_of_cores(nodes), gpus, head_cpus)
    return local.up(home.path, shape)


def status(home: Home, address: str | None = None, deep: bool = False) -> dict[str, Any]:
    """Return a cluster's nodes, resources and jobs, as `cluster status -o json` prints them.

    Args:
        address: of the cluster's dashboard; None: the cluster of this home.
        deep: run a task on every node of this home's cluster: `health` has the checks.
    """
    if address is not None:
        return {"up": True, **Dashboard(address.rstrip("/"), find_token()).overview()}
    own_cluster = local.find(home.path)
    if own_cluster is None:
        return {"up": False}
    overview = {"up": True, **own_cluster.describe(), **own_cluster.ask().overview()}
    overview["held"] = quarantine.held(home.path)
    if deep:
        checks = examine_cluster(home, own_cluster.address, True, REMEDY)
        overview["health"] = [asdict(check) for check in checks]
    return overview
