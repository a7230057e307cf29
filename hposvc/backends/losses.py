"""Nodes on which one slot after the other dies, while others work: no fault of the trials."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

ROW = 3  # deaths, without an order that was done there in between


@dataclass
class _Row:
    """Deaths on a node since an order was last done there."""

    trials: list[frozenset[str]] = field(default_factory=list)  # that each death took along
    others: bool = False  # whether slots on other nodes have worked meanwhile


@dataclass
class Losses:
    """Of the slots of one sweep, by node."""

    rows: dict[str, _Row] = field(default_factory=dict)

    def lose(self, node: str, trials: Iterable[str]) -> bool:
        """A slot died; whether that is the node's doing, as far as one can say.

        It is not where nothing works anywhere, nor where it was the same trials each time.
        """
        row = self.rows.setdefault(node, _Row())
        row.trials.append(frozenset(trials))
        same = len(set(row.trials)) == 1 and bool(row.trials[0])
        return len(row.trials) >= ROW and row.others and not same

    def serve(self, nodes: Collection[str], ended: bool) -> None:
        """A slot on these nodes works.

        Args:
            ended: an order of it is over; otherwise it reported.
        """
        for node in nodes if ended else ():
            self.rows.pop(node, None)
        for node, row in self.rows.items():
            row.others = row.others or node not in nodes
