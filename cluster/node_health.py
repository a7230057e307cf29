"""Judgement of a node's probe: its problems, and remedies for them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MOST_OFFSET_S = 2.0  # curves and budgets use the driver's clock
WRONG_S = 60.0  # from there on, stores and services refuse a machine's signatures
BUSY = 0.5  # processes per core
SLOW = 0.5  # of the median of equal parts; probes of one machine differ by a quarter at most

Node = Mapping[str, Any]  # as returned by `ray.nodes`
Probe = Mapping[str, Any]  # the result of `probes.examine`, and `clock`: seconds before ours


@dataclass(frozen=True)
class Issue:
    """A problem of a node."""

    text: str
    remedy: str
    fatal: bool  # whether sweeps can't, or should not, run there


@dataclass(frozen=True)
class NodeHealth:
    """A node with its problems."""

    name: str
    text: str
    issues: tuple[Issue, ...] = ()

    @property
    def unfit(self) -> str:
        """The reasons why nothing should run on the node, for people; empty: it may."""
        return "; ".join(issue.text for issue in self.issues if issue.fatal)


def judge(node: Node, probe: Probe | str, slow_parts: Sequence[Issue]) -> NodeHealth:
    """Return the health of a node.

    Args:
        probe: its probe; a text: the reason why there is none.
        slow_parts: what `speed_issues` has for the node.
    """
    if isinstance(probe, str):
        issue = Issue(probe, "see Ray's logs on that node, or take it out of the cluster", True)
        return NodeHealth(node["NodeName"], "does not answer", (issue,))
    amounts = ", ".join(f"{node['Resources'].get(kind, 0.0):g} {kind}" for kind in ("CPU", "GPU"))
    text = "; ".join((amounts, *probe["notes"], f"clock {probe['clock']:+.2f} s"))
    return NodeHealth(node["NodeName"], text, (*own_issues(probe), *slow_parts))


def own_issues(probe: Probe) -> Iterator[Issue]:
    """Yield the problems of a node that show without comparing its speed with others'."""
    yield from (Issue(*problem) for problem in probe["problems"])
    if (offset_s := abs(probe["clock"])) > MOST_OFFSET_S:
        text = f"its clock is {offset_s:.1f} s {'before' if probe['clock'] > 0 else 'behind'} ours"
        yield Issue(text, "let NTP set the clocks of all nodes", offset_s > WRONG_S)


def speed_issues(fleet: Mapping[str, Probe | str]) -> dict[str, list[Issue]]:
    """Return, for each node, its parts that are far slower than equal parts in the whole fleet.

    Busy nodes are left out: a core of a fully loaded machine copies memory far more slowly.

    Args:
        fleet: the nodes' probes; a text: the reason why there is none.
    """
    idle = [
        (node, speed)
        for node, probe in fleet.items()
        if not isinstance(probe, str) and probe.get("busy", 0.0) <= BUSY
        for speed in probe["speeds"]
    ]
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, speed in idle:
        values[speed["what"], speed["model"]].append(speed["value"])
    issues: dict[str, list[Issue]] = {node: [] for node in fleet}
    for node, speed in idle:
        middle = median(values[speed["what"], speed["model"]])
        if speed["value"] < SLOW * middle:
            text = (
                f"{speed['what']} of {speed['part']} ({speed['model']}): {speed['value']:.3g} "
                f"{speed['unit']}, the median of its like is {middle:.3g}"
            )
            remedy = "look at its clocks, cooling, power and neighbours"
            issues[node].append(Issue(text, remedy, True))
    return issues
