"""Gangs: all ranks of a slot get their places together, or none does.

The places of a slot that can't start yet are kept for it, so that smaller slots do not take them
one by one for ever.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hposvc.queue.claim import Amounts, Claim

ROUNDING = 1e-4  # Ray counts resources in 1/10,000

Nodes = Mapping[str, Amounts]


@dataclass
class FreeResources:
    """The resources of each node that are not given away."""

    nodes: dict[str, dict[str, float]]

    @classmethod
    def of(cls, nodes: Nodes) -> "FreeResources":
        """Return the room of nodes that are empty."""
        return cls({name: dict(amounts) for name, amounts in nodes.items()})

    def count(self, node: str, needs: Amounts) -> int:
        """Return how many ranks have room on a node; a node that has gone has none."""
        amounts = self.nodes.get(node, {})
        return max(
            0,
            min(
                int((amounts.get(name, 0.0) + ROUNDING) / amount)
                for name, amount in needs.items()
                if amount
            ),
        )

    def fits(self, places: Mapping[str, int], needs: Amounts) -> bool:
        """Whether there is room for these ranks."""
        return all(self.count(node, needs) >= ranks for node, ranks in places.items())

    def take(self, places: Mapping[str, int], needs: Amounts, sign: float = 1.0) -> None:
        """Give the room of these ranks away; with a sign of -1, take it back."""
        for node, ranks in places.items():
            if node in self.nodes:
                amounts = self.nodes[node]
                for name, amount in needs.items():
                    amounts[name] = amounts.get(name, 0.0) - sign * amount * ranks


@dataclass
class Search:
    """Finds places for new slots that need the same, while rooms only become fuller.

    Args:
        rooms: in all of which a slot must fit.
        nodes: on which it may be, the preferred ones first.
    """

    rooms: tuple[FreeResources, ...]
    nodes: Iterable[str]
    _open: list[str] = field(init=False)  # the nodes that had room for a rank
    _whole: dict[int, list[str]] = field(default_factory=dict)  # for so many, the preferred last

    def __post_init__(self) -> None:
        self._open = list(self.nodes)

    def place(self, claim: Claim) -> dict[str, int] | None:
        """Return places for a new slot, its ranks by node; None: there is no room."""
        if claim.placement != "spread":
            whole = self._whole.setdefault(claim.ranks, self._open[::-1])
            while whole:
                if self._count(whole[-1], claim.needs) >= claim.ranks:
                    return {whole[-1]: claim.ranks}
                whole.pop()
            if claim.placement == "strict_pack":
                return None
        counts = {node: self._count(node, claim.needs) for node in self._open}
        counts = {node: count for node, count in counts.items() if count}
        self._open = [*counts]
        return choose(counts, claim.ranks, claim.placement)

    def _count(self, node: str, needs: Amounts) -> int:
        return min(room.count(node, needs) for room in self.rooms)


def choose(counts: Mapping[str, int], ranks: int, placement: str) -> dict[str, int] | None:
    """Return the ranks on each node, of a slot that no node holds alone; None: they do not fit.

    Args:
        counts: how many ranks have room on each node, the preferred nodes first.
    """
    if sum(counts.values()) < ranks:
        return None
    places: Counter[str] = Counter()
    if placement == "spread":
        while places.total() < ranks:
            for node in counts:
                if places.total() < ranks and places[node] < counts[node]:
                    places[node] += 1
        return dict(places)
    for node in counts:
        places[node] = min(ranks - places.total(), counts[node])
        if places.total() == ranks:
            break
    return dict(places)


@dataclass
class Reserved:
    """A new slot that is granted, and its places."""

    claim: Claim
    places: Mapping[str, int]
    free: bool  # whether nobody holds these places now
    starts_at: float | None = None  # when they are expected to be free; None: unknown
    behind: list[str] = field(default_factory=list)  # sweeps that hold them


def allowed(claim: Claim, nodes: Iterable[str]) -> Iterable[str]:
    """Return those of the nodes on which a sweep's ranks may be."""
    if claim.nodes is None:
        return nodes
    own = set(claim.nodes)
    return [node for node in nodes if node in own]
