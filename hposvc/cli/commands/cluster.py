"""Verbs about clusters: start and end one on this machine, and show the state of any."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.cli.app import commands
from hposvc.cli.exit_codes import OUT_OF_REACH
from hposvc.cli.options import Shared, share
from hposvc.views.console import note, show

REMEDY = "see the nodes' logs: `hposvc cluster down`, then `up`, begins anew"


@commands.group()
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
    from cluster import local
    from hposvc.views.cluster import describe_started

    shape = local.Shape(nodes, cpus or local.share_of_cores(nodes), gpus, head_cpus)
    note(f"starting a head and {nodes} worker node{'s' * (nodes > 1)}")
    local_cluster, fresh = local.up(_home(shared), shape)
    if not fresh:
        note("this home's cluster is up already; `hposvc cluster down` ends it")
    if not shared.json({**local_cluster.describe(), "started": fresh}):
        show(*describe_started(local_cluster))


@cluster.command()
@share
@click.option(
    "--address", metavar="URL", help="Ask the dashboard at URL; by default this home's cluster."
)
@click.option("--deep", is_flag=True, help="Run a task on every node of this home's cluster.")
@click.pass_obj
def status(shared: Shared, address: str | None, deep: bool) -> int:
    """Show nodes, resources, the dashboard, and the jobs that run."""
    from cluster import local, quarantine
    from cluster.dashboard import Dashboard
    from cluster.jobs import find_token
    from hposvc.journal.home import Home
    from hposvc.operations.doctor import examine_cluster
    from hposvc.views.cluster import describe_checks, describe_held, describe_overview

    if address is not None:
        if deep:
            raise click.UsageError("--deep has no --address; see: hposvc doctor --deep")
        overview = Dashboard(address.rstrip("/"), find_token()).overview()
        if not shared.json({"up": True, **overview}):
            show(*describe_overview(overview))
        return 0
    own_cluster = local.find(_home(shared))
    if own_cluster is None:
        if not shared.json({"up": False}):
            note("this home has no cluster; `hposvc cluster up --local 2` starts one")
        return OUT_OF_REACH
    overview = {**own_cluster.describe(), **own_cluster.ask().overview()}
    overview["held"] = held = quarantine.held(_home(shared))
    checks = (
        list(examine_cluster(Home.of(shared.home), own_cluster.address, True, REMEDY))
        if deep
        else []
    )
    if deep:
        overview["health"] = [asdict(check) for check in checks]
    if not shared.json({"up": True, **overview}):
        show(*describe_overview(overview), *describe_held(held), *describe_checks(checks))
    return OUT_OF_REACH if any(check.state == "fail" for check in checks) else 0


@cluster.command()
@share
@click.pass_obj
def down(shared: Shared) -> None:
    """End the cluster that `up` started, and nothing else."""
    from cluster import local

    ended = local.down(_home(shared))
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

    try:
        quarantine.hold(_home(shared), node, reason)
    except quarantine.BadName as error:
        raise click.UsageError(f"{error}") from error
    if not shared.json({"node": node, "reason": reason}):
        show(f"held: {node} ({reason}); `hposvc cluster lift {node}` takes it back")


@cluster.command()
@click.argument("node")
@share
@click.pass_obj
def lift(shared: Shared, node: str) -> None:
    """Let sweeps that are started from now on use NODE again."""
    from cluster import quarantine
    from hposvc.journal.home import NotFound

    try:
        was_held = quarantine.lift(_home(shared), node)
    except quarantine.BadName as error:
        raise click.UsageError(f"{error}") from error
    if not was_held:
        held = ", ".join(quarantine.held(_home(shared))) or "none"
        raise NotFound(f"{node}: it is not held; held are: {held}")
    if not shared.json({"node": node}):
        show(f"lifted: {node}")


def _home(shared: Shared) -> Path:
    from hposvc.journal.home import Home

    return Home.of(shared.home).path
