"""Detection of nodes on which slots keep dying while slots on other nodes work."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

DEATHS_IN_A_ROW = 3  # deaths on a node without a finished order in between


@dataclass
class _Row:
    """The deaths of slots on a node since an order last finished there."""

    trials: list[frozenset[str]] = field(default_factory=list)  # those that each death ended
    others: bool = False  # whether slots on other nodes have worked meanwhile


@dataclass
class NodeFailures:
    """The deaths of a sweep's slots, by node."""

    rows: dict[str, _Row] = field(default_factory=dict)

    def record_death(self, node: str, trials: Iterable[str]) -> bool:
        """Record a slot's death, and return whether the node seems to be the cause.

        The node is not blamed while nothing works on any other node, nor if each death hit the
        same trials.
        """
        row = self.rows.setdefault(node, _Row())
        row.trials.append(frozenset(trials))
        same = len(set(row.trials)) == 1 and bool(row.trials[0])
        return len(row.trials) >= DEATHS_IN_A_ROW and row.others and not same

    def record_work(self, nodes: Collection[str], ended: bool) -> None:
        """Record that a slot on these nodes works.

        Args:
            ended: an order of the slot ended; otherwise the slot sent a report.
        """
        for node in nodes if ended else ():
            self.rows.pop(node, None)
        for node, row in self.rows.items():
            row.others = row.others or node not in nodes
