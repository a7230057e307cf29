"""Verbs about clusters: one on this machine for trying things out, and how any of them is."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.commands.group import commands
from hposvc.views.console import note, show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared, share

REMEDY = "see the nodes' logs: `hposvc cluster down`, then `up`, begins anew"


@commands.group()
def cluster() -> None:
    """Ray clusters: start one on this machine for trying things out, look at it, end it."""


@cluster.command()
@share
@click.option("--local", "nodes", type=click.IntRange(1, 200), metavar="N", required=True)
@click.option("--cpus", type=click.FloatRange(0, min_open=True), help="Of each worker node.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="Of each worker node.")
@click.option("--head-cpus", type=click.FloatRange(0), default=0.0, help="For trials; else none.")
@click.pass_obj
def up(shared: Shared, nodes: int, cpus: float | None, gpus: int, head_cpus: float) -> None:
    """Start a head and N worker nodes on this machine.

    All of it is on this machine: the nodes share its cores, whatever --cpus says. Without --cpus
    they divide them.
    """
    from cluster import local
    from hposvc.views import cluster as views

    shape = local.Shape(nodes, cpus or local.share_of_cores(nodes), gpus, head_cpus)
    note(f"starting a head and {nodes} worker node{'s' * (nodes > 1)}")
    found, fresh = local.up(_home(shared), shape)
    if not fresh:
        note("this home's cluster is up already; `hposvc cluster down` ends it")
    if not shared.json({**found.described(), "started": fresh}):
        show(*views.started(found))


@cluster.command()
@share
@click.option("--address", metavar="URL", help="Of a cluster's dashboard; else this home's.")
@click.option("--deep", is_flag=True, help="Run a task on every node of this home's cluster.")
@click.pass_obj
def status(shared: Shared, address: str | None, deep: bool) -> int:
    """Show nodes, resources, the dashboard, and the jobs that run."""
    from cluster import local, quarantine
    from cluster.dashboard import Dashboard
    from cluster.jobs import find_token
    from hposvc.doctor import examine_cluster
    from hposvc.home import Home
    from hposvc.views import cluster as views

    if address is not None:
        if deep:
            raise click.UsageError("--deep has no --address; see: hposvc doctor --deep")
        found = Dashboard(address.rstrip("/"), find_token()).overview()
        if not shared.json({"up": True, **found}):
            show(*views.seen(found))
        return 0
    own = local.find(_home(shared))
    if own is None:
        if not shared.json({"up": False}):
            note("this home has no cluster; `hposvc cluster up --local 2` starts one")
        return OUT_OF_REACH
    found = {**own.described(), **own.ask().overview()}
    found["held"] = held = quarantine.held(_home(shared))
    checks = list(examine_cluster(Home.of(shared.home), own.address, True, REMEDY)) if deep else []
    if deep:
        found["health"] = [asdict(check) for check in checks]
    if not shared.json({"up": True, **found}):
        show(*views.seen(found), *views.held(held), *views.probed(checks))
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
@click.option("--reason", default="by hand", metavar="TEXT", help="For people.")
@share
@click.pass_obj
def hold(shared: Shared, node: str, reason: str) -> None:
    """Start nothing new on NODE, in no sweep of this home, until it is lifted.

    What runs there goes on. Sweeps hold nodes that are unfit, or where slots die one after the
    other, and with `failure.straggler: drain` slow ones.
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
    from hposvc.home import NotFound

    try:
        there = quarantine.lift(_home(shared), node)
    except quarantine.BadName as error:
        raise click.UsageError(f"{error}") from error
    if not there:
        held = ", ".join(quarantine.held(_home(shared))) or "none"
        raise NotFound(f"{node}: it is not held; held are: {held}")
    if not shared.json({"node": node}):
        show(f"lifted: {node}")


def _home(shared: Shared) -> Path:
    from hposvc.home import Home

    return Home.of(shared.home).path
