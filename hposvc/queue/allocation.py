"""Allocation of the slots of a cluster to the sweeps that want them.

One by one: to the highest priority first, within it to the sweep that is furthest behind its due
(`fair.py`), within its quotas (`quotas.py`), all ranks together (`gangs.py`).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hposvc.queue.claim import Claim, Held
from hposvc.queue.fair import ShareNode, SweepAllocation, entitlements, size, tree
from hposvc.queue.gangs import FreeResources, Nodes, Reserved, Search, allowed
from hposvc.queue.quotas import Quotas, most_slots
from hposvc.queue.rules import Rules


@dataclass
class Allocation:
    """The claims on a cluster while the slots are allocated."""

    claims: Sequence[Claim]
    nodes: Nodes
    rules: Rules
    now: float
    left: FreeResources = field(init=False)  # not allocated
    idle: FreeResources = field(init=False)  # held by nobody, and not allocated to start now
    quotas: Quotas = field(init=False)
    kept: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    reserved: dict[str, list[Reserved]] = field(default_factory=lambda: defaultdict(list))
    granted: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # GPUs
    refused: dict[str, str] = field(default_factory=dict)
    # By what slots need, the nodes that they may use, and whether nobody may hold their places.
    _searches: dict[tuple[object, ...], Search] = field(default_factory=dict)
    _preferred: list[str] = field(init=False)  # nodes, those first whose slots are given back first

    def __post_init__(self) -> None:
        self.total = total_of(self.nodes)
        self.quotas = Quotas(self.rules)
        self.left, self.idle = FreeResources.of(self.nodes), FreeResources.of(self.nodes)
        for claim in self.claims:
            for held in claim.held:
                self.idle.take(held.nodes, claim.needs)
        live = [claim for claim in self.claims if claim.wanted or claim.held]
        self.due = self._entitlements(live)
        self._preferred = self._by_victims(live)
        self.candidates = [self._candidate(claim) for claim in live]

    def allocate(self) -> None:
        """Allocate the slots."""
        for candidate in self.candidates:
            if not candidate.claim.preemptible:
                while candidate.wants and candidate.next_is_held():
                    self._allocate_to(candidate)
        for priority in sorted(
            {candidate.claim.priority for candidate in self.candidates}, reverse=True
        ):
            level = [
                candidate
                for candidate in self.candidates
                if candidate.claim.priority == priority and candidate.wants
            ]
            if level:
                self._allocate_level(
                    tree(level, self.claims, self.due, self.granted, self.rules, self.now)
                )

    def _allocate_level(self, root: ShareNode) -> None:
        while (candidate := root.candidate) is not None:
            before = self.granted[candidate.claim.sweep]
            self._allocate_to(candidate)
            root.settle(self.granted[candidate.claim.sweep] - before)

    def _allocate_to(self, candidate: SweepAllocation) -> None:
        """Allocate the next slot of a sweep to it, if it may have it and there is room."""
        claim = candidate.claim
        held = candidate.held[candidate.taken] if candidate.next_is_held() else None
        slot_size = candidate.new_size if held is None else candidate.next_held_size()
        ranks = claim.ranks if held is None else held.ranks
        candidate.taken += 1
        if refusal := self.quotas.refusal(claim, ranks):
            self.refused[claim.sweep] = refusal
            candidate.closed = held is None  # of the slots that it holds, others may be smaller
            return
        if held is not None and self.left.fits(held.nodes, claim.needs):
            self.left.take(held.nodes, claim.needs)
            self.kept[claim.sweep].append(held)
        else:
            reserved = self._reserve(claim)
            if reserved is None:
                candidate.closed = held is None  # of the slots that it holds, others may be kept
                return
            self.reserved[claim.sweep].append(reserved)
            slot_size, ranks = candidate.new_size, claim.ranks
        self.quotas.take(claim, ranks)
        self.granted[claim.sweep] += slot_size

    def _reserve(self, claim: Claim) -> Reserved | None:
        """Find places for a new slot: free ones, or those of slots that will be given back."""
        places = self._search(claim, free=True).place(claim)
        free = places is not None
        if places is None:
            places = self._search(claim, free=False).place(claim)
        if places is None:
            return None
        self.left.take(places, claim.needs)
        if free:
            self.idle.take(places, claim.needs)
        return Reserved(claim, places, free)

    def _search(self, claim: Claim, free: bool) -> Search:
        """Return the search for places: free ones, or any that are not allocated."""
        key = (free, claim.nodes, *sorted(claim.needs.items()))
        if key not in self._searches:
            rooms = (self.left, self.idle) if free else (self.left,)
            nodes: Iterable[str] = self.nodes if free else self._preferred
            self._searches[key] = Search(rooms, allowed(claim, nodes))
        return self._searches[key]

    def _entitlements(self, live: Sequence[Claim]) -> dict[str, float]:
        wanted = {
            claim.sweep: most_slots(claim, self.rules) * size(claim.needs, claim.ranks, self.total)
            for claim in live
        }
        finite = [claim for claim in live if math.isfinite(wanted[claim.sweep])]
        capacity = self.total.get("GPU") or self.total.get("CPU", 0.0)
        return entitlements(finite, wanted, capacity, self.rules)

    def _candidate(self, claim: Claim) -> SweepAllocation:
        held = _keep_order(claim)
        sizes = {
            ranks: size(claim.needs, ranks, self.total)
            for ranks in {claim.ranks, *(each.ranks for each in held)}
        }
        return SweepAllocation(
            claim, held, [sizes[each.ranks] for each in held], sizes[claim.ranks]
        )

    def _by_victims(self, live: Sequence[Claim]) -> list[str]:
        """Return the nodes, those first whose slots are the first to be given back.

        Of nodes with slots of equal priority the emptiest comes first. A node that is being
        cleared for a gang becomes emptier, so at the next look it is the same node again; looks
        that chose another one would keep the room of both.
        """
        first: dict[str, tuple[float, ...]] = {}
        for claim in live:
            if not claim.preemptible:
                continue
            has = sum(size(claim.needs, held.ranks, self.total) for held in claim.held)
            balance = claim.account.at_time(self.now, self.rules.half_life).balance
            ahead = balance + (has - self.due.get(claim.sweep, 0.0)) * self.rules.max_ahead
            ahead /= claim.weight or 1e-9
            for held in claim.held:
                at = math.inf if held.free_at is None else held.free_at
                for node in held.nodes:
                    place = (claim.priority, -ahead, at)
                    first[node] = min(place, first.get(node, place))
        unit = "GPU" if self.total.get("GPU") else "CPU"

        def key(node: str) -> tuple[float, ...]:
            priority, *others = first.get(node, (-math.inf, 0.0, 0.0))
            return priority, -self.idle.nodes[node].get(unit, 0.0), *others

        return sorted(self.nodes, key=key)


def _keep_order(claim: Claim) -> list[Held]:
    """Return the slots of a sweep, those last that come to a rung first.

    A slot that still starts is last of all where the sweep wants fewer than it holds: in its place
    a trial would have to leave a slot that works.
    """
    fewer = claim.wanted < len(claim.held)

    def free_at(held: Held) -> float:
        if fewer and held.starts:
            return -math.inf
        return math.inf if held.free_at is None else held.free_at

    return sorted(claim.held, key=lambda held: (-free_at(held), held.slot))


def total_of(nodes: Nodes) -> dict[str, float]:
    """Return the resources of all nodes together."""
    total: dict[str, float] = defaultdict(float)
    for amounts in nodes.values():
        for name, amount in amounts.items():
            total[name] += amount
    return dict(total)
