"""Backfill: room that is kept for a larger slot works until that slot can start.

Other sweeps say how long their orders take to the next rung, where they give a slot back without a
loss. A slot whose first order is there before the larger slot's places are all free delays nobody.

Source: Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling (2001): here the lengths are measured, not guessed.
"""

from collections.abc import Iterable, Mapping, Sequence

from hposvc.queue.claim import Claim
from hposvc.queue.gangs import Reserved, Room, Search


def fitting(
    waiting: Sequence[Reserved],
    claims: Iterable[Claim],
    missing: Mapping[str, int],
    free: Room,
    now: float,
) -> dict[str, int]:
    """Return how many slots each sweep may have for an order, beyond its share.

    Args:
        waiting: the slots that room is kept for.
        claims: sweeps that could use it, the first ones first.
        missing: how many slots each still wants, by sweep.
        free: what nobody holds now; what is given out is taken from it.
    """
    starts: dict[str, float] = {}
    for reserved in waiting:
        at = now if reserved.starts_at is None else reserved.starts_at
        for node in reserved.places:
            starts[node] = min(at, starts.get(node, at))
    given: dict[str, int] = {}
    for claim in claims:
        if claim.order_s is None:
            continue
        nodes = [node for node, at in starts.items() if now + claim.order_s <= at]
        allowed = [node for node in nodes if claim.nodes is None or node in claim.nodes]
        search = Search((free,), allowed)
        for _ in range(missing[claim.sweep]):
            places = search.place(claim)
            if places is None:
                break
            free.take(places, claim.needs)
            given[claim.sweep] = given.get(claim.sweep, 0) + 1
    return given
