"""A sweep's claim: what it holds and wants, in the journal for those that share its cluster.

Each driver writes the claim of its own sweep, and reads those of the others. All compute the
shares of all sweeps from them (`hposvc/queue/shares.py`), so there is no process that hands out
shares, and none that can be lost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

IDLE = 0.0  # as the time when a slot is free
LONGEST_START_S = 3600.0  # a slot that starts for longer counts as one that is idle
Amounts = Mapping[str, float]  # by resource, in Ray's units: CPU, GPU, memory in bytes
Placement = Literal["pack", "strict_pack", "spread"]


@dataclass(frozen=True)
class Account:
    """The slot time of a sweep, in GPU-seconds that count half after each half-life."""

    used: float = 0.0  # that it had
    due: float = 0.0  # that was due to it while it wanted slots, by its weight
    at: float = 0.0  # the time of these figures, in seconds of the epoch
    free: float = 0.0  # that its slots started in, for which it is not charged

    def at_time(self, now: float, half_life_s: float) -> "Account":
        """Return the account as it is later, if nothing is added."""
        kept = 0.5 ** (max(0.0, now - self.at) / half_life_s)
        return Account(self.used * kept, self.due * kept, max(now, self.at), self.free * kept)

    def charge(self, used: float, due: float) -> "Account":
        """Return the account with these GPU-seconds added."""
        return replace(self, used=self.used + used, due=self.due + due)

    def charge_slots(
        self, work: float, start: float, due: float, contested: bool, seconds: float
    ) -> "Account":
        """Return the account after seconds in which slots of these sizes worked and started.

        A start is free, and nothing is due for it, until starts took an hour of all slots more
        than work did: else a sweep that starts again and again would get much of the cluster.
        """
        if self.free >= self.used + LONGEST_START_S * (work + start):
            work, start = work + start, 0.0
        due = max(0.0, due - start)
        if not contested:  # what nobody else could have had was due to it
            due = max(due, work)
        account = self.charge(work * seconds, due * seconds)
        return replace(account, free=self.free + start * seconds)

    @property
    def balance(self) -> float:
        """GPU-seconds that it had beyond what was due to it."""
        return self.used - self.due


@dataclass(frozen=True)
class Held:
    """A slot that a sweep holds."""

    slot: str  # its name, unique in the cluster
    nodes: Mapping[str, int]  # its ranks, by node
    # When its order comes to its next rung or its end, where the slot can be given back without a
    # loss. None: unknown; 0: it is idle.
    free_at: float | None = None
    start_s: float = 0.0  # that its start took, or takes so far
    work_s: float | None = 0.0  # since its start; None: it starts

    @cached_property
    def ranks(self) -> int:
        """How many ranks it has."""
        return sum(self.nodes.values())

    @property
    def starts(self) -> bool:
        """Whether its ranks start, and have not taken too long for that."""
        return self.work_s is None and self.start_s < LONGEST_START_S

    def is_new(self, max_ahead_s: float) -> bool:
        """Whether it starts, or has worked for less than its start took, up to `max_ahead`."""
        return self.starts if self.work_s is None else self.work_s < min(self.start_s, max_ahead_s)


@dataclass(frozen=True)
class Claim:
    """The slots that a sweep holds and wants, and what its share depends on."""

    sweep: str
    queue: str
    user: str
    project: str
    since: float  # when it came to the cluster, in seconds of the epoch
    wanted: int  # slots, with those that it holds
    needs: Amounts  # of a rank
    ranks: int = 1  # of a new slot
    placement: Placement = "pack"
    nodes: tuple[str, ...] | None = None  # on which its ranks may be; None: on any
    priority: int = 0
    weight: float = 1.0
    preemptible: bool = True  # whether a slot may be taken before the sweep gives it back itself
    held: tuple[Held, ...] = ()
    order_s: float | None = None  # from the start of a slot to its next rung; None: unknown
    account: Account = field(default_factory=Account)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Claim | None":
        """Return the claim in JSON data; None: a version that this one can't read wrote it."""
        try:
            return cls.of(data)
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Claim":
        """Return the claim that `data` wrote; what a later version added is left out."""
        known = _known(cls, data)
        known["held"] = tuple(Held(**_known(Held, held)) for held in known["held"])
        account = Account(**_known(Account, known["account"]))
        known["account"] = account if math.isfinite(account.balance) else Account()
        nodes = known.get("nodes")
        return cls(**{**known, "nodes": None if nodes is None else tuple(nodes)})


def _known(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a dataclass's fields."""
    return {name: data[name] for name in kind.__dataclass_fields__ if name in data}
