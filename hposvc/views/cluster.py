"""Views of a cluster, and of the checks of machines: tables, and shell lines to copy."""

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cluster.local import LocalCluster
from hposvc.operations.doctor import Check
from hposvc.text import NONE, duration, format_bytes
from hposvc.views.console import make_table

COLOURS = {"ALIVE": "green", "DEAD": "red", "ok": "green", "warn": "yellow", "fail": "bold red"}


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
    yield Text(f"dashboard  {overview['dashboard']}")
    yield _nodes(overview["nodes"])
    if overview["jobs"]:
        yield _jobs(overview["jobs"])
    else:
        yield Text("no job runs", "bright_black")
    yield from _held_nodes(overview.get("held", {}))
    if "health" in overview:
        yield checks([Check(**check) for check in overview["health"]])


def checks(results: Iterable[Check]) -> Table:
    """Return the table of checks, one row each, with the remedy below the finding."""
    table = make_table("", "check", "found")
    for check in results:
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", "bold")
        table.add_row(Text(check.state, COLOURS[check.state]), check.check, text)
    return table


def _held_nodes(nodes: Mapping[str, str]) -> Iterator[RenderableType]:
    """Describe the held nodes, on which nothing new starts; nothing if there are none."""
    if nodes:
        table = make_table("held", "because")
        for name, reason in nodes.items():
            table.add_row(Text(name, "yellow"), reason)
        yield table


def _nodes(nodes: list[Mapping[str, Any]]) -> Table:
    table = make_table("node", "state", "address", "CPU", "GPU", "memory")
    for node in nodes:
        memory = node["resources"].get("memory")
        table.add_row(
            node["name"],
            Text(node["state"], COLOURS.get(node["state"], "")),
            node["host"],
            _share(node, "CPU"),
            _share(node, "GPU"),
            NONE if memory is None else format_bytes(memory),
        )
    return table


def _share(node: Mapping[str, Any], name: str) -> str:
    total = node["resources"].get(name)
    return NONE if total is None else f"{node['used'].get(name, 0.0):g} of {total:g}"


def _jobs(jobs: list[Mapping[str, Any]]) -> Table:
    table = make_table("job", "status", "since")
    for job in jobs:
        table.add_row(job["job"], job["status"], duration(time.time() - job["since"]))
    return table
