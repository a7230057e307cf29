"""How many ranks the next slots get, where trials take from so many to so many."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hposvc.backends.joined import Joined
from hposvc.backends.slot import Slot

PATIENCE_S = 30.0  # for a wide slot to be placed; then somebody else took its room
NARROW_S = 600.0  # how long no wide one is asked for then; twice as long each further time


@dataclass
class Widths:
    """Of one sweep's slots.

    They grow only where Ray has the room now, since other sweeps may hold some of the cluster. Who
    was quicker is found out by waiting: then trials go on with the fewest ranks.
    """

    joined: Joined
    _ranks: int = field(init=False)
    _narrow_until: float = 0.0  # monotonic seconds
    _narrow_s: float = NARROW_S

    def __post_init__(self) -> None:
        self._ranks = self.joined.resources.ranks

    def choose(self, wanted: int, slots: Sequence[Slot]) -> int:
        """The ranks of each new slot.

        Args:
            wanted: how many slots there are to be at once.
            slots: those that there are.
        """
        least, widest = self.joined.resources.ranks, self.joined.widest(wanted)
        if widest == least or time.monotonic() < self._narrow_until or self._lost(slots):
            self._ranks = least
        elif widest <= self._ranks or self._free(widest * wanted, slots):
            self._ranks = widest
        return self._ranks

    def _lost(self, slots: Sequence[Slot]) -> bool:
        """Whether a wide slot waits for room in vain."""
        now = time.monotonic()
        lost = any(
            slot.state == "placing" and now - slot.asked_at > PATIENCE_S
            for slot in slots
            if slot.resources.ranks > self.joined.resources.ranks
        )
        if lost:
            self._narrow_until = now + self._narrow_s
            self._narrow_s *= 2
        return lost

    def _free(self, ranks: int, slots: Sequence[Slot]) -> bool:
        """Whether our slots and what nobody holds come to so many ranks."""
        held = sum(slot.resources.ranks for slot in slots if slot.state != "placing")
        return held + self.joined.free() >= ranks
