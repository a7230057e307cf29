"""Fair shares: by weight, over time, between queues, their users, and these users' sweeps.

Every sweep has an entitlement, the part of the cluster that its weight gives it beside the others
that want slots now (`entitlements`). What it had and what was due to it are added up, older time
counting less, so a sweep that had less than its due comes first until it is even. That lets a sweep
whose slot is larger than its entitlement have the slot for a part of the time. What a sweep used
while nobody else wanted it was due to it, so it is not held against the sweep later.

A queue or a user without a weight of its own counts as much as the heaviest of its sweeps, so no
user gets more by submitting more sweeps.

Sources: for weighted max-min shares, Bertsekas and Gallager, Data Networks (1992), section 6.5.2;
for counting several resources by the one of which a sweep takes the largest part, Ghodsi et al.,
Dominant Resource Fairness (NSDI 2011); for the balance of service had and due, Stoica and
Abdel-Wahab, Earliest Eligible Virtual Deadline First (1995).
"""

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from hposvc.queue.claim import Amounts, Claim, Held
from hposvc.queue.rules import Member, Rules

Key = TypeVar("Key", bound=Hashable)
# A slot that is held counts as this much of `max_ahead` longer behind its due: without that, two
# sweeps that are even would take a slot from each other at every rung.
HOLD = 0.25


def size(amounts: Amounts, ranks: int, total: Amounts) -> float:
    """Return the size of a slot, in GPUs of the cluster (in CPUs, if it has no GPU).

    It is the part of the cluster that the slot takes of the resource of which it takes most.
    """
    unit = total.get("GPU") or total.get("CPU", 0.0)
    parts = (
        amount * ranks / total[name] if total.get(name) else math.inf
        for name, amount in amounts.items()
        if amount
    )
    return unit * max(parts, default=0.0)


def entitlements(
    claims: Sequence[Claim], wanted: Mapping[str, float], capacity: float, rules: Rules
) -> dict[str, float]:
    """Return the part of the cluster that is due to each sweep now, by its id.

    Args:
        wanted: what each sweep wants, in GPUs, within its quotas.
        capacity: of the cluster, in GPUs.
    """
    due: dict[str, float] = {}
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        level = [claim for claim in claims if claim.priority == priority]
        parts = _divide(level, wanted, capacity, rules, _LEVELS)
        capacity = max(0.0, capacity - sum(parts.values()))
        due |= parts
    return due


def _heaviest(claims: Iterable[Claim]) -> float:
    """Return the largest weight of those that want slots; of all, if none does."""
    listed = list(claims)
    return max(claim.weight for claim in [claim for claim in listed if claim.wanted] or listed)


Level = tuple[Callable[[Claim], str], Callable[[Rules], Mapping[str, Member]]]
# From the outside in: how sweeps are grouped, and what the operator says of the groups.
_LEVELS: tuple[Level, ...] = (
    (lambda claim: claim.queue, lambda rules: rules.queues),
    (lambda claim: claim.user, lambda rules: rules.users),
    (lambda claim: claim.sweep, lambda rules: {}),
)


def _weight(member: Member | None, claims: Iterable[Claim]) -> float:
    """Return the weight of a group of sweeps beside its like."""
    own = None if member is None else member.weight
    return _heaviest(claims) if own is None else own


def _divide(
    claims: Sequence[Claim],
    wanted: Mapping[str, float],
    capacity: float,
    rules: Rules,
    levels: Sequence[Level],
) -> dict[str, float]:
    """Divide an amount between groups by weight, and the part of each within it."""
    if not levels:
        return {claims[0].sweep: capacity}
    (name_of, members_of), *inner = levels
    groups, members = grouped(claims, name_of), members_of(rules)
    pairs = {}
    for name, group in groups.items():
        member, most = members.get(name), sum(wanted[claim.sweep] for claim in group)
        if member is not None and member.gpus is not None:
            most = min(most, member.gpus)
        pairs[name] = (_weight(member, group), most)
    parts = divide_by_weight(pairs, capacity)
    due: dict[str, float] = {}
    for name, group in groups.items():
        due |= _divide(group, wanted, parts[name], rules, inner)
    return due


def grouped(claims: Iterable[Claim], name_of: Callable[[Claim], str]) -> dict[str, list[Claim]]:
    """Return the claims of each name."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        groups.setdefault(name_of(claim), []).append(claim)
    return groups


def divide_by_weight(wanted: Mapping[Key, tuple[float, float]], amount: float) -> dict[Key, float]:
    """Divide an amount by weight; what one does not want is divided between the others.

    Those of weight 0 get what the others leave, in equal parts.

    Args:
        wanted: the weight of each, and the most that it wants.
    """
    weighted = {key: pair for key, pair in wanted.items() if pair[0] > 0}
    parts = _divide_positive(weighted, amount)
    rest = {key: (1.0, most) for key, (weight, most) in wanted.items() if weight <= 0}
    return parts | _divide_positive(rest, max(0.0, amount - sum(parts.values())))


def _divide_positive(wanted: Mapping[Key, tuple[float, float]], amount: float) -> dict[Key, float]:
    parts: dict[Key, float] = {}
    # By the level at which each is satisfied: the first ones leave more to those that follow.
    ranked = sorted(wanted.items(), key=lambda item: item[1][1] / item[1][0])
    # Weights of each and all behind it; a difference of sums would not be exact.
    weights = [*accumulate(weight for _, (weight, _) in reversed(ranked))]
    for (key, (weight, most)), all_weights in zip(ranked, reversed(weights), strict=True):
        parts[key] = min(most, amount * weight / all_weights)
        amount = max(0.0, amount - parts[key])
    return parts


@dataclass(eq=False)
class ShareNode:
    """A queue, a user's part of a queue, or a sweep, while slots are allocated.

    The one that would be furthest behind its due after `max_ahead` comes first.
    """

    weight: float
    behind: float  # GPU-seconds that it will be behind its due after that without any slot
    max_ahead_s: float
    place: tuple[float, str]  # breaks ties: time of arrival, and name
    candidate: "SweepAllocation | None" = (
        None  # of the sweep that comes next; None: none of its sweeps wants more
    )
    parts: list[tuple[tuple[object, ...], int, "ShareNode"]] = field(default_factory=list)  # a heap
    granted: float = 0.0  # GPUs

    def key(self) -> tuple[object, ...]:
        """Return its place among its like: the least comes first."""
        candidate = self.candidate
        assert candidate is not None  # a node without any leaves its heap
        ahead = (self.granted - HOLD * candidate.next_held_size()) * self.max_ahead_s - self.behind
        # Rounded, so that what is equal but for the order of its sums is a tie.
        return (self.weight <= 0, round(ahead / (self.weight or 1.0), 6), *self.place)

    def add(self, part: "ShareNode") -> None:
        """Add a node that has a sweep which wants something."""
        heapq.heappush(self.parts, (part.key(), id(part), part))
        self.candidate = self.parts[0][2].candidate

    def settle(self, amount: float) -> None:
        """Record what the sweep that came next got, and find the next one."""
        self.granted += amount
        if self.parts:
            part = self.parts[0][2]
            part.settle(amount)
            if part.candidate is None:
                heapq.heappop(self.parts)
            else:
                heapq.heapreplace(self.parts, (part.key(), id(part), part))
            self.candidate = self.parts[0][2].candidate if self.parts else None
        elif self.candidate is not None and not self.candidate.wants:
            self.candidate = None


@dataclass(eq=False)
class SweepAllocation:
    """A sweep while slots are allocated."""

    claim: Claim
    held: Sequence[Held]  # in the order in which it keeps them
    sizes: Sequence[float]  # of these
    new_size: float  # of each further slot
    taken: int = 0  # slots that were decided on so far
    closed: bool = False  # nothing more is for it

    @property
    def wants(self) -> bool:
        """Whether another slot may be for it."""
        return not self.closed and self.taken < self.claim.wanted

    def next_is_held(self) -> bool:
        """Whether its next slot is one that it holds."""
        return self.taken < len(self.sizes)

    def next_held_size(self) -> float:
        """Return the size of its next slot if it holds that one, otherwise 0."""
        return self.sizes[self.taken] if self.taken < len(self.sizes) else 0.0


def tree(
    candidates: Collection[SweepAllocation],
    accounts: Sequence[Claim],
    due: Mapping[str, float],
    granted: Mapping[str, float],
    rules: Rules,
    now: float,
) -> ShareNode:
    """Return the nodes of shares from the cluster down to these sweeps.

    Args:
        accounts: all sweeps, also those that have ended: what they had counts for their users.
        due: entitlements, by sweep.
        granted: GPUs that were granted before, by sweep.
    """
    by_sweep = {candidate.claim.sweep: candidate for candidate in candidates}

    def behind(claim: Claim) -> float:
        account = claim.account.at_time(now, rules.half_life)
        return due.get(claim.sweep, 0.0) * rules.max_ahead - account.balance

    def grow(
        claims: Sequence[Claim],
        levels: Sequence[Level],
        weight: float,
    ) -> ShareNode:
        place = min((claim.since, claim.sweep) for claim in claims if claim.sweep in by_sweep)
        candidate = None if levels else by_sweep[claims[0].sweep]
        node = ShareNode(weight, sum(map(behind, claims)), rules.max_ahead, place, candidate)
        node.granted = sum(granted.get(claim.sweep, 0.0) for claim in claims)
        if levels:
            (name_of, members_of), *inner = levels
            members = members_of(rules)
            for name, group in grouped(claims, name_of).items():
                if any(claim.sweep in by_sweep and by_sweep[claim.sweep].wants for claim in group):
                    node.add(grow(group, inner, _weight(members.get(name), group)))
        return node

    return grow(accounts, _LEVELS, 1.0)
