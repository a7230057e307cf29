"""The shares of the sweeps on a cluster: which slots each may hold now.

A pure function of the sweeps' claims, so that every driver computes the same. Slots are allocated
(`allocation.py`), and what is kept for large slots works for short orders meanwhile
(`backfill.py`). A slot that a sweep holds and is not allocated is lost: the sweep gives it back at
the next rung of its trial, where nothing is trained twice. Only for a higher priority its trial is
interrupted.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hposvc.queue.allocation import Allocation
from hposvc.queue.backfill import Backfill
from hposvc.queue.claim import Claim, Held
from hposvc.queue.gangs import FreeResources, Nodes, Reserved, Search, allowed
from hposvc.queue.quotas import most_slots
from hposvc.queue.rules import Rules

NAMED = 5  # sweeps that are named in a wait


@dataclass(frozen=True)
class Shortage:
    """Why a sweep has fewer slots than it wants, and none of them can start now."""

    behind: tuple[str, ...] = ()  # sweeps that hold what it waits for, the `NAMED` largest
    until: float | None = None  # when it is expected to get a slot; None: unknown
    reason: str = ""  # a quota, or that the cluster has no such room; empty: others come first


@dataclass(frozen=True)
class SlotShare:
    """A sweep's share: what it may hold now."""

    due: float = 0.0  # its part of the cluster by its weight, in GPUs
    slots: int = 0
    lost: tuple[str, ...] = ()  # slots that it holds beyond that: to be given back
    interrupted: tuple[str, ...] = ()  # of these, those that are not to wait for a rung
    avoid: frozenset[str] = frozenset()  # nodes that are kept for larger slots of others
    crowded: bool = False  # whether some other sweep waits that could have slots
    contested: bool = False  # whether one of these could use what this sweep has
    wait: Shortage | None = None  # None: it has all that it wants, or gets a slot now


def shares(
    claims: Sequence[Claim], nodes: Nodes, rules: Rules, now: float, whole: Nodes | None = None
) -> dict[str, SlotShare]:
    """Return the share of every sweep that holds or wants slots, by its id.

    Args:
        claims: of all sweeps on a cluster, and of those that have ended, for their accounts.
        nodes: the resources of each live node, without what is held outside these sweeps.
        now: in seconds of the epoch.
        whole: the resources of each node, with that. None: nothing is held outside.
    """
    allocation = Allocation(
        sorted(claims, key=lambda claim: (claim.since, claim.sweep)), nodes, rules, now
    )
    allocation.allocate()
    answers = Answers(allocation, nodes if whole is None else whole)
    return {
        candidate.claim.sweep: answers.share(candidate.claim) for candidate in allocation.candidates
    }


@dataclass
class Answers:
    """Says what the allocation means for each sweep, once the slots are allocated."""

    allocation: Allocation
    whole: Nodes

    def __post_init__(self) -> None:
        allocation = self.allocation
        claims = [candidate.claim for candidate in allocation.candidates]
        reserved = [each for listed in allocation.reserved.values() for each in listed]
        self._lost = {claim.sweep: _lost(allocation, claim) for claim in claims}
        self._waiting = [each for each in reserved if not each.free]
        self._interrupted: set[str] = set()  # slots whose places a higher priority gets
        self._forecast()
        self._extra = self._backfill(claims) if self._waiting else {}
        # Nodes on which larger slots are to be, by the size of a slot.
        self._sizes = {
            candidate.claim.sweep: candidate.new_size for candidate in allocation.candidates
        }
        self._larger = {
            own: _nodes(each for each in reserved if self._sizes[each.claim.sweep] > own)
            for own in {*self._sizes.values()}
        }
        granted = [name for name, amount in allocation.granted.items() if amount > 0]
        self._largest = sorted(granted, key=lambda name: -allocation.granted[name])[: NAMED + 1]
        self._fits: dict[tuple[object, ...], bool] = {}
        self._waiters = [
            claim
            for claim in claims
            if self._late(claim)
            and claim.sweep not in allocation.refused
            and self._fits_into(allocation.nodes, claim)
        ]

    def share(self, claim: Claim) -> SlotShare:
        """Return the share of a sweep."""
        allocation, own = self.allocation, self.allocation.reserved[claim.sweep]
        slots, lost = self._slots(claim), [held.slot for held in self._lost[claim.sweep]]
        starts = any(each.free for each in own)  # a slot that nobody else holds
        others = [other for other in self._waiters if other.sweep != claim.sweep]
        held_outside = (
            not slots and claim.sweep not in allocation.refused and self._is_held_outside(claim)
        )
        kept_for_others = self._larger[self._sizes[claim.sweep]] - _nodes(own)
        return SlotShare(
            due=allocation.due.get(claim.sweep, 0.0),
            # What others than the sweeps of this journal hold is waited for in Ray's own line.
            slots=1 if held_outside and claim.wanted else slots,
            lost=tuple(lost),
            interrupted=tuple(slot for slot in lost if slot in self._interrupted),
            avoid=frozenset(kept_for_others if own and claim.sweep not in self._extra else ()),
            crowded=bool(others),
            contested=any(self._could_use(other, claim) for other in others),
            wait=self._wait(claim)
            if self._late(claim) and not starts and not held_outside
            else None,
        )

    def _slots(self, claim: Claim) -> int:
        kept, reserved = self.allocation.kept[claim.sweep], self.allocation.reserved[claim.sweep]
        return len(kept) + len(reserved) + self._extra.get(claim.sweep, 0)

    def _late(self, claim: Claim) -> bool:
        """Whether a sweep wants more than it can have now."""
        waits = any(not each.free for each in self.allocation.reserved[claim.sweep])
        return waits or self._slots(claim) < claim.wanted

    def _forecast(self) -> None:
        """Find out which sweeps hold the places of each slot that waits, and until when."""
        allocation, room = self.allocation, FreeResources.of(self.allocation.idle.nodes)
        given_back: dict[str, list[tuple[float, int, Held, Claim]]] = defaultdict(list)
        for number, claim in enumerate(candidate.claim for candidate in allocation.candidates):
            for held in self._lost[claim.sweep]:
                at = math.inf if held.free_at is None else max(held.free_at, allocation.now)
                for node in held.nodes:
                    given_back[node].append((at, number, held, claim))
        for listed in given_back.values():
            listed.sort(key=lambda item: item[:2], reverse=True)
        for reserved in self._waiting:
            starts_at = allocation.now
            for node, ranks in reserved.places.items():
                while room.count(node, reserved.claim.needs) < ranks and given_back[node]:
                    at, _, held, claim = given_back[node].pop()
                    room.take({node: held.nodes[node]}, claim.needs, sign=-1.0)
                    starts_at = max(starts_at, at)
                    reserved.behind.append(claim.sweep)
                    if claim.preemptible and claim.priority < reserved.claim.priority:
                        self._interrupted.add(held.slot)
                room.take({node: ranks}, reserved.claim.needs)
            reserved.behind = [*dict.fromkeys(reserved.behind)]
            reserved.starts_at = None if math.isinf(starts_at) else starts_at

    def _backfill(self, claims: Sequence[Claim]) -> dict[str, int]:
        """Return how many slots each sweep may have for an order, beyond its share."""
        allocation, extra = self.allocation, dict[str, int]()
        backfill = Backfill(self._waiting, allocation.idle, allocation.quotas, allocation.now)
        first = sorted(claims, key=lambda claim: (-claim.priority, claim.since, claim.sweep))
        for claim in first:
            held = [
                held
                for held in self._lost[claim.sweep]
                if held.slot not in self._interrupted and backfill.keeps(claim, held)
            ]
            self._lost[claim.sweep] = [lost for lost in self._lost[claim.sweep] if lost not in held]
            extra[claim.sweep] = len(held)
        for claim in first:
            missing = most_slots(claim, allocation.rules) - len(allocation.kept[claim.sweep])
            missing -= len(allocation.reserved[claim.sweep]) + extra[claim.sweep]
            extra[claim.sweep] += backfill.add(claim, max(0, missing))
        return {sweep: count for sweep, count in extra.items() if count}

    def _wait(self, claim: Claim) -> Shortage:
        """Return why a sweep has fewer slots than it wants, and until when."""
        late = [reserved for reserved in self.allocation.reserved[claim.sweep] if not reserved.free]
        if late:
            first = min(late, key=lambda reserved: reserved.starts_at or math.inf)
            return Shortage(tuple(first.behind[:NAMED]), first.starts_at)
        if claim.sweep in self.allocation.refused:
            return Shortage(reason=self.allocation.refused[claim.sweep])
        if not self._fits_into(self.allocation.nodes, claim):
            return Shortage(reason="no node of the cluster has room for it")
        return Shortage(tuple(name for name in self._largest if name != claim.sweep)[:NAMED])

    def _is_held_outside(self, claim: Claim) -> bool:
        """Whether a slot has no room only because of what is held outside these sweeps."""
        return not self._fits_into(self.allocation.nodes, claim) and self._fits_into(
            self.whole, claim
        )

    def _fits_into(self, nodes: Nodes, claim: Claim) -> bool:
        """Whether a slot would fit if nothing were held of these resources."""
        needs = sorted(claim.needs.items())
        key = (nodes is self.whole, claim.nodes, claim.ranks, claim.placement, *needs)
        if key not in self._fits:
            empty = Search((FreeResources.of(nodes),), allowed(claim, nodes))
            self._fits[key] = empty.place(claim) is not None
        return self._fits[key]

    def _could_use(self, other: Claim, claim: Claim) -> bool:
        """Whether a sweep that waits lacks, on a node, something that this sweep has there."""
        common = [name for name, amount in other.needs.items() if amount and claim.needs.get(name)]
        waits = [each for each in self.allocation.reserved[other.sweep] if not each.free]
        places, left = _nodes(waits), self.allocation.left.nodes
        own = _nodes(self.allocation.reserved[claim.sweep]).union(
            *(held.nodes for held in claim.held)
        )
        return any(
            node in places or left.get(node, {}).get(name, 0.0) < other.needs[name] * other.ranks
            for node in allowed(other, own)
            for name in common
        )


def _lost(allocation: Allocation, claim: Claim) -> list[Held]:
    """Return the slots of a sweep that were not allocated to it."""
    kept = {held.slot for held in allocation.kept[claim.sweep]}
    return [held for held in claim.held if held.slot not in kept]


def _nodes(reserved: Iterable[Reserved]) -> set[str]:
    return {node for each in reserved for node in each.places}
