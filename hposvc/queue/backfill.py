"""Backfill: room that is kept for a larger slot works until that slot can start.

Other sweeps say how long their orders take to the next rung, where they give a slot back without a
loss. A slot whose first order is there before the larger slot's places are all free delays nobody.

Source: Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling (2001): here the lengths are measured, not guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hposvc.queue.claim import IDLE, Claim, Held
from hposvc.queue.gangs import FreeResources, Reserved, Search, allowed
from hposvc.queue.quotas import Quotas


@dataclass
class Backfill:
    """Finds slots that may work, beyond their sweeps' shares, in room that is kept.

    Args:
        waiting: the slots that room is kept for.
        free: what nobody holds now; what is given out is taken from it.
    """

    waiting: Sequence[Reserved]
    free: FreeResources
    quotas: Quotas
    now: float

    def __post_init__(self) -> None:
        self._starts: dict[str, float] = {}  # when the first of these slots begins on a node
        for reserved in self.waiting:
            at = self.now if reserved.starts_at is None else reserved.starts_at
            for node in reserved.places:
                self._starts[node] = min(at, self._starts.get(node, at))

    def keeps(self, claim: Claim, held: Held) -> bool:
        """Whether a sweep may use a slot for one more order, though it is not its share's."""
        starts = self._starts
        in_time = all(node in starts and self._ends(claim) <= starts[node] for node in held.nodes)
        stays = held.is_new(self.quotas.rules.max_ahead) or (held.free_at == IDLE and in_time)
        return stays and self._within_quotas(claim, held.ranks)

    def add(self, claim: Claim, most: int) -> int:
        """Return how many new slots a sweep may have for an order each.

        Args:
            most: how many it wants.
        """
        ends = self._ends(claim)
        nodes = [node for node, at in self._starts.items() if ends <= at]
        search = Search((self.free,), allowed(claim, nodes))
        for number in range(most if nodes else 0):
            places = search.place(claim)
            if places is None or not self._within_quotas(claim, claim.ranks):
                return number
            self.free.take(places, claim.needs)
        return most if nodes else 0

    def _ends(self, claim: Claim) -> float:
        """Return when an order that begins now can give its slot back."""
        return math.inf if claim.order_s is None else self.now + claim.order_s

    def _within_quotas(self, claim: Claim, ranks: int) -> bool:
        if self.quotas.refusal(claim, ranks):
            return False
        self.quotas.take(claim, ranks)
        return True
