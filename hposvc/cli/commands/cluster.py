"""Verbs about clusters: start and end one on this machine, and show the state of any."""

import click

from hposvc.errors import OUT_OF_REACH
from hposvc.verbs.options import Shared, home_of, share
from hposvc.views.console import note, show


@click.group()
def cluster() -> None:
    """Start, look at and end a Ray cluster on this machine."""


@cluster.command()
@share
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
def up(shared: Shared, nodes: int, cpus: float | None, gpus: int, head_cpus: float) -> None:
    """Start a head and N worker nodes on this machine.

    All nodes share this machine's cores, whatever --cpus says. Without --cpus, the cores are
    divided among them.
    """
    from hposvc.operations import cluster
    from hposvc.views.cluster import describe_started

    note(f"starting a head and {nodes} worker node{'s' * (nodes > 1)}")
    started, fresh = cluster.up(home_of(shared), nodes, cpus, gpus, head_cpus)
    if not fresh:
        note("this home's cluster is up already; `hposvc cluster down` ends it")
    if not shared.json({**started.describe(), "started": fresh}):
        show(*describe_started(started))


@cluster.command()
@share
@click.option(
    "--address", metavar="URL", help="Ask the dashboard at URL; by default this home's cluster."
)
@click.option("--deep", is_flag=True, help="Run a task on every node of this home's cluster.")
@click.pass_obj
def status(shared: Shared, address: str | None, deep: bool) -> int:
    """Show nodes, resources, the dashboard, and the jobs that run."""
    from hposvc.operations import cluster
    from hposvc.views.cluster import describe_overview

    if address is not None and deep:
        raise click.UsageError("--deep has no --address; see: hposvc doctor --deep")
    overview = cluster.status(home_of(shared), address, deep)
    if not shared.json(overview):
        if overview["up"]:
            show(*describe_overview(overview))
        else:
            note("this home has no cluster; `hposvc cluster up --local 2` starts one")
    failed = any(check["state"] == "fail" for check in overview.get("health", ()))
    return OUT_OF_REACH if failed or not overview["up"] else 0


@cluster.command()
@share
@click.pass_obj
def down(shared: Shared) -> None:
    """End the cluster that `up` started, and nothing else."""
    from cluster import local

    ended = local.down(home_of(shared).path)
    names = [] if ended is None else [node.name for node in ended.nodes]
    if not shared.json({"ended": names}):
        show(f"ended: {', '.join(names)}" if names else "this home has no cluster")


@cluster.command()
@click.argument("node")
@click.option("--reason", default="by hand", metavar="TEXT", help="Record why, for people.")
@share
@click.pass_obj
def hold(shared: Shared, node: str, reason: str) -> None:
    """Start nothing new on NODE, in any sweep of this home, until `lift`.

    Trials that run there continue. Sweeps themselves hold nodes that are unfit, or on which slots
    die one after another; with `failure.straggler: drain`, slow nodes too.
    """
    from cluster import quarantine

    quarantine.hold(home_of(shared).path, node, reason)
    if not shared.json({"node": node, "reason": reason}):
        show(f"held: {node} ({reason}); `hposvc cluster lift {node}` takes it back")


@cluster.command()
@click.argument("node")
@share
@click.pass_obj
def lift(shared: Shared, node: str) -> None:
    """Let sweeps that are started from now on use NODE again."""
    from cluster import quarantine

    quarantine.lift(home_of(shared).path, node)
    if not shared.json({"node": node}):
        show(f"lifted: {node}")
