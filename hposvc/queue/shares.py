"""The shares of the sweeps on a cluster: which slots each may hold now.

A pure function of the sweeps' claims, so that every driver computes the same. Slots are dealt out
one by one: to the highest priority first, within it to the sweep that is furthest behind its due
(`fair.py`), within its quotas (`quotas.py`), all ranks together (`gangs.py`). A slot that a sweep
holds and is not dealt is lost: the sweep gives it back at the next rung of its trial, where nothing
is trained twice. Only for a higher priority its trial is interrupted.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hposvc.queue.backfill import fitting
from hposvc.queue.claim import Claim, Held
from hposvc.queue.fair import Branch, Seat, entitlements, size, tree
from hposvc.queue.gangs import Nodes, Reserved, Room, Search
from hposvc.queue.quotas import Quotas, most_slots
from hposvc.queue.rules import Rules

NAMED = 5  # sweeps that are named in a wait


@dataclass(frozen=True)
class Shortage:
    """Why a sweep has fewer slots than it wants."""

    behind: tuple[str, ...] = ()  # sweeps that hold what it waits for, the `NAMED` largest
    until: float | None = None  # when it is expected to get a slot; None: unknown
    reason: str = ""  # a quota, or that the cluster has no such room; empty: others come first


@dataclass(frozen=True)
class SlotShare:
    """What a sweep may hold now."""

    due: float = 0.0  # its part of the cluster by its weight, in GPUs
    slots: int = 0
    lost: tuple[str, ...] = ()  # slots that it holds beyond that: to be given back
    interrupted: tuple[str, ...] = ()  # of these, those that are not to wait for a rung
    avoid: frozenset[str] = frozenset()  # nodes that are kept for larger slots of others
    wait: Shortage | None = None  # None: it has all that it wants


@dataclass
class Table:
    """The claims on a cluster while the slots are dealt out."""

    claims: Sequence[Claim]
    nodes: Nodes
    rules: Rules
    now: float
    left: Room = field(init=False)  # not dealt out
    idle: Room = field(init=False)  # held by nobody, and not dealt out to start now
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
        self.left, self.idle = Room.of(self.nodes), Room.of(self.nodes)
        for claim in self.claims:
            for held in claim.held:
                self.idle.take(held.nodes, claim.needs)
        live = [claim for claim in self.claims if claim.wanted or claim.held]
        self.due = self._entitlements(live)
        self._preferred = self._by_victims(live)
        self.seats = [self._seat(claim) for claim in live]

    def deal(self) -> None:
        """Deal the slots out."""
        for seat in self.seats:
            if not seat.claim.preemptible:
                while seat.wants and seat.next_is_held():
                    self._deal_to(seat)
        for priority in sorted({seat.claim.priority for seat in self.seats}, reverse=True):
            level = [seat for seat in self.seats if seat.claim.priority == priority and seat.wants]
            if level:
                self._deal_level(
                    tree(level, self.claims, self.due, self.granted, self.rules, self.now)
                )

    def _deal_level(self, root: Branch) -> None:
        while (seat := root.seat) is not None:
            before = self.granted[seat.claim.sweep]
            self._deal_to(seat)
            root.settle(self.granted[seat.claim.sweep] - before)

    def _deal_to(self, seat: Seat) -> None:
        """Deal the next slot of a sweep to it, if it may have it and there is room."""
        claim = seat.claim
        held = seat.held[seat.taken] if seat.next_is_held() else None
        slot_size = seat.new_size if held is None else seat.next_held_size()
        ranks = claim.ranks if held is None else held.ranks
        seat.taken += 1
        if refusal := self.quotas.refusal(claim, ranks):
            self.refused[claim.sweep] = refusal
            seat.closed = True
            return
        if held is not None and self.left.fits(held.nodes, claim.needs):
            self.left.take(held.nodes, claim.needs)
            self.kept[claim.sweep].append(held)
        else:
            reserved = self._reserve(claim)
            if reserved is None:
                seat.closed = held is None  # of the slots that it holds, others may be kept
                return
            self.reserved[claim.sweep].append(reserved)
            slot_size = seat.new_size
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
        """Return the search for places: free ones, or any that are not dealt out."""
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

    def _seat(self, claim: Claim) -> Seat:
        held = _keep_order(claim)
        sizes = {
            ranks: size(claim.needs, ranks, self.total)
            for ranks in {claim.ranks, *(each.ranks for each in held)}
        }
        return Seat(claim, held, [sizes[each.ranks] for each in held], sizes[claim.ranks])

    def _by_victims(self, live: Sequence[Claim]) -> list[str]:
        """Return the nodes, those first whose slots are the first to be given back.

        Of nodes with slots of equal priority the emptiest comes first. A node that is being
        cleared for a gang becomes emptier, so at the next look it is the same node again; looks
        that chose another one would keep the room of both.
        """
        first: dict[str, tuple[float, float, float]] = {}
        for claim in live:
            if not claim.preemptible:
                continue
            has = sum(size(claim.needs, held.ranks, self.total) for held in claim.held)
            balance = claim.account.at_time(self.now, self.rules.half_life).balance
            ahead = balance + (has - self.due.get(claim.sweep, 0.0)) * self.rules.turn
            ahead /= claim.weight or 1e-9
            for held in claim.held:
                at = math.inf if held.free_at is None else held.free_at
                for node in held.nodes:
                    key = (claim.priority, -ahead, at)
                    first[node] = min(key, first.get(node, key))
        unit = "GPU" if self.total.get("GPU") else "CPU"

        def rank(node: str) -> tuple[float, ...]:
            priority, *others = first.get(node, (-math.inf, 0.0, 0.0))
            return priority, -self.idle.nodes[node].get(unit, 0.0), *others

        return sorted(self.nodes, key=rank)


def shares(claims: Sequence[Claim], nodes: Nodes, rules: Rules, now: float) -> dict[str, SlotShare]:
    """Return the share of every sweep that holds or wants slots, by its id.

    Args:
        claims: of all sweeps on a cluster, and of those that have ended, for their accounts.
        nodes: the resources of each live node, without what is held outside these sweeps.
        now: in seconds of the epoch.
    """
    table = Table(sorted(claims, key=lambda claim: (claim.since, claim.sweep)), nodes, rules, now)
    table.deal()
    kept = {sweep: {held.slot for held in listed} for sweep, listed in table.kept.items()}
    lost = {
        claim.sweep: [held for held in claim.held if held.slot not in kept.get(claim.sweep, ())]
        for claim in table.claims
    }
    waiting = [
        reserved for listed in table.reserved.values() for reserved in listed if not reserved.free
    ]
    _forecast(waiting, table, lost)
    extra = _backfill(table, waiting)
    answers = Answers(table, waiting, extra)
    return {
        seat.claim.sweep: answers.share(seat.claim, lost[seat.claim.sweep]) for seat in table.seats
    }


def _forecast(
    waiting: Sequence[Reserved], table: Table, lost: Mapping[str, Sequence[Held]]
) -> None:
    """Find out which sweeps hold the places of each slot that waits, and until when."""
    room = Room.of(table.idle.nodes)
    given_back: dict[str, list[tuple[float, int, Held, Claim]]] = defaultdict(list)
    for number, claim in enumerate(table.claims):
        for held in lost[claim.sweep]:
            at = math.inf if held.free_at is None else max(held.free_at, table.now)
            for node in held.nodes:
                given_back[node].append((at, number, held, claim))
    for listed in given_back.values():
        listed.sort(key=lambda item: item[:2], reverse=True)
    for reserved in waiting:
        starts_at = table.now
        for node, ranks in reserved.places.items():
            while room.count(node, reserved.claim.needs) < ranks and given_back[node]:
                at, _, held, claim = given_back[node].pop()
                room.take({node: held.nodes[node]}, claim.needs, sign=-1.0)
                starts_at = max(starts_at, at)
                reserved.behind.append(claim.sweep)
            room.take({node: ranks}, reserved.claim.needs)
        reserved.behind = [*dict.fromkeys(reserved.behind)]
        reserved.starts_at = None if math.isinf(starts_at) else starts_at


def _backfill(table: Table, waiting: Sequence[Reserved]) -> dict[str, int]:
    missing = {
        claim.sweep: most_slots(claim, table.rules)
        - len(table.kept[claim.sweep])
        - len(table.reserved[claim.sweep])
        for claim in (seat.claim for seat in table.seats)
    }
    first = sorted(
        (seat.claim for seat in table.seats if missing[seat.claim.sweep] > 0),
        key=lambda claim: (-claim.priority, claim.since, claim.sweep),
    )
    return fitting(waiting, first, missing, table.idle, table.now) if waiting else {}


@dataclass
class Answers:
    """Says what the table means for each sweep."""

    table: Table
    waiting: Sequence[Reserved]
    extra: Mapping[str, int]  # slots beyond the share, by sweep

    def __post_init__(self) -> None:
        reserved = [each for listed in self.table.reserved.values() for each in listed]
        claims = [seat.claim for seat in self.table.seats]
        # Nodes that are waited for by a higher priority, by priority.
        self._claimed = {
            priority: _nodes(each for each in self.waiting if each.claim.priority > priority)
            for priority in {claim.priority for claim in claims}
        }
        # Nodes on which slots with more ranks are to be, by number of ranks.
        self._larger = {
            ranks: _nodes(each for each in reserved if each.claim.ranks > ranks)
            for ranks in {claim.ranks for claim in claims}
        }
        granted = self.table.granted
        self._largest = sorted(granted, key=lambda name: -granted[name])[: NAMED + 1]
        self._fits: dict[tuple[object, ...], bool] = {}

    def share(self, claim: Claim, lost: Sequence[Held]) -> SlotShare:
        """Return the share of a sweep.

        Args:
            lost: slots that were not dealt to it.
        """
        own, more = self.table.reserved[claim.sweep], self.extra.get(claim.sweep, 0)
        slots = len(self.table.kept[claim.sweep]) + len(own) + more
        claimed = self._claimed[claim.priority] if claim.preemptible else set()
        has_all = slots >= claim.wanted and all(each.free for each in own)
        return SlotShare(
            due=self.table.due.get(claim.sweep, 0.0),
            slots=slots,
            lost=tuple(held.slot for held in lost),
            interrupted=tuple(held.slot for held in lost if claimed & {*held.nodes}),
            avoid=frozenset()
            if more or not own
            else frozenset(self._larger[claim.ranks] - _nodes(own)),
            wait=None if has_all else self._wait(claim),
        )

    def _wait(self, claim: Claim) -> Shortage:
        """Return why a sweep has fewer slots than it wants, and until when."""
        late = [reserved for reserved in self.table.reserved[claim.sweep] if not reserved.free]
        if late:
            first = min(late, key=lambda reserved: reserved.starts_at or math.inf)
            return Shortage(tuple(first.behind[:NAMED]), first.starts_at)
        if claim.sweep in self.table.refused:
            return Shortage(reason=self.table.refused[claim.sweep])
        if not self._fits_at_all(claim):
            return Shortage(reason="no node of the cluster has room for it")
        return Shortage(tuple(name for name in self._largest if name != claim.sweep)[:NAMED])

    def _fits_at_all(self, claim: Claim) -> bool:
        """Whether a slot would fit if the cluster were empty."""
        key = (claim.nodes, claim.ranks, claim.placement, *sorted(claim.needs.items()))
        if key not in self._fits:
            empty = Search((Room.of(self.table.nodes),), allowed(claim, self.table.nodes))
            self._fits[key] = empty.place(claim) is not None
        return self._fits[key]


def _nodes(reserved: Iterable[Reserved]) -> set[str]:
    return {node for each in reserved for node in each.places}


def allowed(claim: Claim, nodes: Iterable[str]) -> Iterable[str]:
    """Return those of the nodes on which a sweep's ranks may be."""
    if claim.nodes is None:
        return nodes
    own = set(claim.nodes)
    return [node for node in nodes if node in own]


def _keep_order(claim: Claim) -> list[Held]:
    """Return the slots of a sweep, those last that come to a rung first."""
    at = {id(held): -math.inf if held.free_at is None else -held.free_at for held in claim.held}
    return sorted(claim.held, key=lambda held: (at[id(held)], held.slot))


def total_of(nodes: Nodes) -> dict[str, float]:
    """Return the resources of all nodes together."""
    total: dict[str, float] = defaultdict(float)
    for amounts in nodes.values():
        for name, amount in amounts.items():
            total[name] += amount
    return dict(total)
