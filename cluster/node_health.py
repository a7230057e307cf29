"""Judgement of a node's probes: its problems, and remedies for them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

MOST_OFFSET_S = 2.0  # curves and budgets use the driver's clock
WRONG_S = 60.0  # from there on, stores and services refuse a machine's signatures
BUSY = 0.5  # processes per core
SLOW = 0.5  # of the median of equal parts; probes of one machine differ by a quarter at most


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
    host: str
    text: str
    troubles: tuple[Issue, ...] = ()

    @property
    def unfit(self) -> str:
        """The reasons why nothing should run on the node, for people; empty: it may."""
        return "; ".join(trouble.text for trouble in self.troubles if trouble.fatal)


def own_issues(probe: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield the problems of a node that show without comparing its speed with others'.

    Args:
        probe: `problems`, and `clock`: the node's offset and the error of that, in seconds.
    """
    yield from (Issue(*problem) for problem in probe["problems"])
    offset_s, error_s = probe["clock"]
    if abs(offset_s) - error_s > MOST_OFFSET_S:
        text = f"its clock is {abs(offset_s):.1f} s {'before' if offset_s > 0 else 'behind'} ours"
        fatal = abs(offset_s) - error_s > WRONG_S
        yield Issue(text, "let NTP set the clocks of all nodes", fatal)


def speed_issues(fleet: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Issue, ...]]:
    """Return, for each node, its parts that are far slower than equal parts in the whole fleet.

    Busy nodes are left out: a core of a fully loaded machine copies memory far more slowly.

    Args:
        fleet: results of `probes.exercise`, by node.
    """
    idle = {node: probe for node, probe in fleet.items() if probe.get("busy", 0.0) <= BUSY}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for probe in idle.values():
        for speed in probe["speeds"]:
            values[speed["what"], speed["model"]].append(speed["value"])
    medians = {kind: median(issues) for kind, issues in values.items()}
    issues = {node: tuple(_slow_issues(probe["speeds"], medians)) for node, probe in idle.items()}
    return {**dict.fromkeys(fleet, ()), **issues}


def merge_probes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two probes of a node: the later one, with the higher of each speed."""
    earlier_speeds = {(speed["what"], speed["part"]): speed["value"] for speed in one["speeds"]}
    speeds = [
        {
            **speed,
            "value": max(speed["value"], earlier_speeds.get((speed["what"], speed["part"]), 0.0)),
        }
        for speed in other["speeds"]
    ]
    return {**other, "speeds": speeds}


def _slow_issues(
    speeds: Sequence[Mapping[str, Any]], middles: Mapping[tuple[str, str], float]
) -> Iterator[Issue]:
    for speed in speeds:
        median_ = middles[speed["what"], speed["model"]]
        if speed["value"] < SLOW * median_:
            comparison = (
                f"{speed['value']:.3g} {speed['unit']}, the median of its like is {median_:.3g}"
            )
            text = f"{speed['what']} of {speed['part']} ({speed['model']}): {comparison}"
            yield Issue(text, "look at its clocks, cooling, power and neighbours", True)


def offset(sent: float, theirs: float, heard: float) -> tuple[float, float]:
    """Return how far a node's clock is ahead of ours, and the error of that, in seconds.

    Args:
        theirs: the node's time, read between our times `sent` and `heard`.
    """
    return theirs - (sent + heard) / 2, (heard - sent) / 2
