"""A cluster, as tables and as lines to paste."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cluster.local import Local
from hposvc.doctor import Check
from hposvc.views.checks import checks
from hposvc.views.table import listing
from hposvc.views.words import NONE, duration

COLOURS = {"ALIVE": "green", "DEAD": "red"}
GIB = 2**30


def started(cluster: Local) -> Iterator[RenderableType]:
    """Where it is, and how to use it."""
    yield Text(f"dashboard  {cluster.dashboard}  (it asks for the token: cat {cluster.token})")
    yield Text("\nFor drivers and Ray's own commands:", "bright_black")
    yield Text("\n".join(exports(cluster)))
    yield Text("\nA sweep as a job of it:", "bright_black")
    yield Text(f"hposvc submit SPEC --address {cluster.dashboard}")


def exports(cluster: Local) -> list[str]:
    """Lines for a shell, by which it reaches the cluster."""
    named = cluster.environment().items()
    lines = [f"export {name}={shlex.quote(value)}" for name, value in named]
    # Ray takes this one first, and it is another cluster's.
    return ["unset RAY_AUTH_TOKEN", *lines] if "RAY_AUTH_TOKEN" in os.environ else lines


def seen(overview: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Nodes and jobs."""
    yield Text(f"dashboard  {overview['dashboard']}")
    yield _nodes(overview["nodes"])
    if overview["jobs"]:
        yield _jobs(overview["jobs"])
    else:
        yield Text("no job runs", "bright_black")


def held(nodes: Mapping[str, str]) -> Iterator[RenderableType]:
    """The nodes on which nothing new starts."""
    if nodes:
        table = listing("held", "because")
        for name, reason in nodes.items():
            table.add_row(Text(name, "yellow"), reason)
        yield table


def probed(found: Sequence[Check]) -> Iterator[RenderableType]:
    """What the nodes say of themselves, if they were asked."""
    if found:
        yield checks(found)


def _nodes(nodes: list[Mapping[str, Any]]) -> Table:
    table = listing("node", "state", "address", "CPU", "GPU", "memory")
    for node in nodes:
        memory = node["resources"].get("memory")
        table.add_row(
            node["name"],
            Text(node["state"], COLOURS.get(node["state"], "")),
            node["host"],
            _share(node, "CPU"),
            _share(node, "GPU"),
            NONE if memory is None else f"{memory / GIB:.1f} GiB",
        )
    return table


def _share(node: Mapping[str, Any], name: str) -> str:
    total = node["resources"].get(name)
    return NONE if total is None else f"{node['used'].get(name, 0.0):g} of {total:g}"


def _jobs(jobs: list[Mapping[str, Any]]) -> Table:
    table = listing("job", "status", "since")
    for job in jobs:
        table.add_row(job["job"], job["status"], duration(time.time() - job["since"]))
    return table
