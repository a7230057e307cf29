"""Quotas: the most that the sweeps of a queue, a user or a project hold at once."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from hposvc.queue.claim import Claim
from hposvc.queue.rules import Quota, Rules

ROUNDING = 1e-6


@dataclass
class Quotas:
    """The count of what was granted so far to those that have a quota."""

    rules: Rules
    _granted: dict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    _limits: dict[str, list[tuple[str, str, dict[str, float]]]] = field(default_factory=dict)

    def refusal(self, claim: Claim, ranks: int) -> str:
        """Return the quota that a slot would exceed, for people; empty: none."""
        for kind, name, limits in self._limits_of(claim):
            for resource, most in limits.items():
                asked = claim.needs.get(resource, 0.0) * ranks
                if asked and self._granted[kind, name, resource] + asked > most + ROUNDING:
                    return f"the quota of {kind} {name}, {most:g} {resource}"
        return ""

    def take(self, claim: Claim, ranks: int) -> None:
        """Count a slot that is granted."""
        for kind, name, limits in self._limits_of(claim):
            for resource in limits:
                self._granted[kind, name, resource] += claim.needs.get(resource, 0.0) * ranks

    def _limits_of(self, claim: Claim) -> list[tuple[str, str, dict[str, float]]]:
        """Return the limits that hold for a sweep: of what kind, whose, and the most amounts."""
        if claim.sweep not in self._limits:
            self._limits[claim.sweep] = [
                (kind, name, quota.amounts)
                for kind, name, quota in quotas_of(claim, self.rules)
                if quota.amounts
            ]
        return self._limits[claim.sweep]


def quotas_of(claim: Claim, rules: Rules) -> Iterator[tuple[str, str, Quota]]:
    """Yield the quotas that hold for a sweep: of what kind, whose, and the quota."""
    named = (
        ("queue", claim.queue, rules.queues.get(claim.queue)),
        ("user", claim.user, rules.users.get(claim.user)),
        ("project", claim.project, rules.projects.get(claim.project)),
    )
    yield from ((kind, name, quota) for kind, name, quota in named if quota is not None)


def most_slots(claim: Claim, rules: Rules) -> int:
    """Return how many slots a sweep may have by its quotas, if it were alone."""
    limits = [
        int((limit + ROUNDING) / (claim.needs[resource] * claim.ranks))
        for _, _, quota in quotas_of(claim, rules)
        for resource, limit in quota.amounts.items()
        if claim.needs.get(resource)
    ]
    return min([claim.wanted, *limits])
