"""`cluster`: start and end a Ray cluster on this machine, and show the state of any."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from cluster import local, quarantine
from cluster.dashboard import Dashboard
from cluster.jobs import find_token
from cluster.local import LocalCluster
from hposvc.errors import OUT_OF_REACH
from hposvc.journal.home import Home
from hposvc.text import NONE, duration, format_bytes
from hposvc.verbs.doctor import Check, examine_cluster, table
from hposvc.verbs.options import Shared, shared_options
from hposvc.views.console import make_table, note, show

REMEDY = "see the nodes' logs: `hposvc cluster down`, then `up`, begins anew"
UNITS = ("CPU", "GPU")
COLOURS = {"ALIVE": "green", "DEAD": "red"}


@click.group("cluster")
def cluster_command() -> None:
    """Start, look at and end a Ray cluster on this machine."""


@cluster_command.command("up")
@shared_options
@click.option(
    "--local",
    "nodes",
    type=click.IntRange(1, 200),
    metavar="N",
    required=True,
    help="Start N worker nodes.",
)
@click.option(
    "--cpus", type=click.FloatRange(0, min_open=True), help="Give each worker node N CPUs."
)
@click.option("--gpus", type=click.IntRange(0), default=0, help="Give each worker node N GPUs.")
@click.option(
    "--head-cpus",
    type=click.FloatRange(0),
    default=0.0,
    help="Give the head N CPUs for trials; by default none.",
)
@click.pass_obj
def up_command(shared: Shared, nodes: int, cpus: float | None, gpus: int, head_cpus: float) -> None:
    """Start a head and N worker nodes on this machine.

    All nodes share this machine's cores, whatever --cpus says. Without --cpus, the cores are
    divided among them.
    """
    note(f"starting a head and {nodes} worker node{'s' * (nodes > 1)}")
    shape = local.Shape(nodes, cpus or local.share_of_cores(nodes), gpus, head_cpus)
    started, fresh = local.up(shared.find_home().path, shape)
    if not fresh:
        note("this home's cluster is up already; `hposvc cluster down` ends it")
    if not shared.json({**started.describe(), "started": fresh}):
        show(*describe_started(started))


@cluster_command.command("status")
@shared_options
@click.option(
    "--address", metavar="URL", help="Ask the dashboard at URL; by default this home's cluster."
)
@click.option("--deep", is_flag=True, help="Run a task on every node of this home's cluster.")
@click.pass_obj
def status_command(shared: Shared, address: str | None, deep: bool) -> int:
    """Show nodes, resources, the dashboard, and the jobs that run."""
    if address is not None and deep:
        raise click.UsageError("--deep has no --address; see: hposvc doctor --deep")
    shown = overview(shared.find_home(), address, deep)
    if not shared.json(shown):
        if shown["up"]:
            show(*describe_overview(shown))
        else:
            note("this home has no cluster; `hposvc cluster up --local 2` starts one")
    failed = any(check["state"] == "fail" for check in shown.get("health", ()))
    return OUT_OF_REACH if failed or not shown["up"] else 0


@cluster_command.command("down")
@shared_options
@click.pass_obj
def down_command(shared: Shared) -> None:
    """End the cluster that `up` started, and nothing else."""
    ended = local.down(shared.find_home().path)
    names = [] if ended is None else [node.name for node in ended.nodes]
    if not shared.json({"ended": names}):
        show(f"ended: {', '.join(names)}" if names else "this home has no cluster")


@cluster_command.command("hold")
@click.argument("node")
@click.option("--reason", default="by hand", metavar="TEXT", help="Record why, for people.")
@shared_options
@click.pass_obj
def hold_command(shared: Shared, node: str, reason: str) -> None:
    """Start nothing new on NODE, in any sweep of this home, until `lift`.

    Trials that run there continue. Sweeps themselves hold nodes that are unfit, or on which slots
    die one after another; with `failure.straggler: drain`, slow nodes too.
    """
    quarantine.hold(shared.find_home().path, node, reason)
    if not shared.json({"node": node, "reason": reason}):
        show(f"held: {node} ({reason}); `hposvc cluster lift {node}` takes it back")


@cluster_command.command("lift")
@click.argument("node")
@shared_options
@click.pass_obj
def lift_command(shared: Shared, node: str) -> None:
    """Let sweeps that are started from now on use NODE again."""
    quarantine.lift(shared.find_home().path, node)
    if not shared.json({"node": node}):
        show(f"lifted: {node}")


def overview(home: Home, address: str | None = None, deep: bool = False) -> dict[str, Any]:
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
    shown = {"up": True, **own_cluster.describe(), **own_cluster.ask().overview()}
    shown["held"] = quarantine.held(home.path)
    if deep:
        checks = examine_cluster(home, own_cluster.address, True, REMEDY)
        shown["health"] = [asdict(check) for check in checks]
    return shown


def describe_started(cluster: LocalCluster) -> Iterator[RenderableType]:
    """Describe a started cluster: the address of its dashboard, and how to use it."""
    yield Text(f"dashboard  {cluster.dashboard}  (it asks for the token: cat {cluster.token})")
    yield Text("\nFor drivers and Ray's own commands:", "bright_black")
    yield Text("\n".join(exports(cluster)))
    yield Text("\nA sweep on it:", "bright_black")
    yield Text(f"hposvc submit SPEC --address {cluster.dashboard}")


def exports(cluster: LocalCluster) -> list[str]:
    """Return the shell lines that set the environment for this cluster."""
    variables = cluster.environment().items()
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables]
    # Ray prefers this variable to the token's path, and it holds another cluster's token.
    return ["unset RAY_AUTH_TOKEN", *lines] if "RAY_AUTH_TOKEN" in os.environ else lines


def describe_overview(overview: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Describe a cluster: dashboard, nodes, jobs, held nodes, and checks if they were made."""
    yield f"dashboard  {overview['dashboard']}"
    nodes = make_table("node", "state", "address", "CPU", "GPU", "memory")
    for node in overview["nodes"]:
        total, used = node["resources"], node["used"]
        nodes.add_row(
            node["name"],
            Text(node["state"], COLOURS.get(node["state"], "")),
            node["host"],
            *(f"{used.get(of, 0.0):g} of {total[of]:g}" if of in total else NONE for of in UNITS),
            format_bytes(total["memory"]) if "memory" in total else NONE,
        )
    yield nodes
    if overview["jobs"]:
        jobs = make_table("job", "status", "since")
        for job in overview["jobs"]:
            jobs.add_row(job["job"], job["status"], duration(time.time() - job["since"]))
        yield jobs
    else:
        yield Text("no job runs", "bright_black")
    if held := overview.get("held"):
        reasons = make_table("held", "because")
        for name, reason in held.items():
            reasons.add_row(Text(name, "yellow"), reason)
        yield reasons
    if "health" in overview:
        yield table([Check(**check) for check in overview["health"]])
