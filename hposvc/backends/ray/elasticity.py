"""The number of ranks of new slots, where trials are elastic (a range of workers)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hposvc.backends.ray.cluster import RayCluster
from hposvc.backends.ray.slot import Slot

PATIENCE_S = 30.0  # for a wide slot to be placed; after that another sweep has its room
NARROW_S = 600.0  # how long only narrow slots are requested then; doubles each further time


@dataclass
class ElasticWorkers:
    """Chooses the number of ranks of a sweep's new slots.

    Slots get more ranks only where Ray has room for them now, since other sweeps may hold part of
    the cluster. If another sweep takes that room first, the wide slots wait in vain for
    `PATIENCE_S`; then trials continue with the fewest ranks.
    """

    cluster: RayCluster
    _ranks: int = field(init=False)
    _narrow_until: float = 0.0  # monotonic seconds
    _narrow_s: float = NARROW_S

    def __post_init__(self) -> None:
        self._ranks = self.cluster.resources.ranks

    def choose(self, wanted: int, slots: Sequence[Slot]) -> int:
        """Choose the number of ranks of each new slot.

        Args:
            wanted: how many slots there should be at once.
            slots: the present slots.
        """
        fewest, most = self.cluster.resources.ranks, self.cluster.max_workers(wanted)
        alone = not self.cluster.crowded
        narrow = time.monotonic() < self._narrow_until
        if most == fewest or not alone or narrow or self._waits_in_vain(slots):
            self._ranks = fewest
        elif most <= self._ranks or self._has_room(most * wanted, slots):
            self._ranks = most
        return self._ranks

    def _waits_in_vain(self, slots: Sequence[Slot]) -> bool:
        """Whether a wide slot has waited too long for room; if so, keep slots narrow for now."""
        now = time.monotonic()
        lost = any(
            slot.state == "placing" and now - slot.requested_at > PATIENCE_S
            for slot in slots
            if slot.resources.ranks > self.cluster.resources.ranks
        )
        if lost:
            self._narrow_until = now + self._narrow_s
            self._narrow_s *= 2
        return lost

    def _has_room(self, ranks: int, slots: Sequence[Slot]) -> bool:
        """Whether this sweep's placed slots and the free resources add up to `ranks` ranks.

        What is free while other sweeps wait is for them.
        """
        if self.cluster.line.others():
            return False
        placed = sum(slot.resources.ranks for slot in slots if slot.state != "placing")
        return placed + self.cluster.count_free_ranks() >= ranks
