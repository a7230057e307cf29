"""The line of sweeps of several journals that wait for resources of one Ray cluster.

The sweeps of one journal share a cluster as hposvc/queue says. Those of other journals, as when
several people join a cluster each from a home of their own, know nothing of each other: between
them the order of arrival decides.

Ray 2.60 serves pending placement groups in the reverse order: of three that wait, the last one is
placed first. A driver therefore requests placement groups only while no sweep that arrived earlier
waits for the same resources.

Each waiting driver keeps a ticket in the cluster's own store and changes it at every look. A ticket
that stays as it is belongs to a driver that died or hangs: the others pass it over and delete it.
No process keeps the line, so whichever process dies, the others go on. Drivers that come to life
again write their ticket again, with the same time of arrival.
"""

import json
import time
import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass, field

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)  # no public name exists (Ray 2.60)

STALE_S = 10.0  # a ticket unchanged for so long is that of a driver that died or hangs
NAMESPACE = b"hposvc"
PREFIX = b"line/"  # of keys in the cluster's store; time of arrival and a random part follow


@dataclass(frozen=True)
class Ticket:
    """A sweep that waits, and what it waits for."""

    sweep: str
    lacks: Collection[str] = ()  # names of resources of which too little is free, as CPU
    nodes: Collection[str] = ()  # Ray's ids of the nodes on which the sweep may run
    looks: int = 0  # how often its driver has looked
    journal: str = ""  # of the sweep

    def blocks(self, names: Collection[str], nodes: Collection[str]) -> bool:
        """Whether these resources on these nodes would be taken from this sweep."""
        return not (set(names).isdisjoint(self.lacks) or set(nodes).isdisjoint(self.nodes))


@dataclass
class WaitingLine:
    """The line, as one driver sees it; Ray must be connected.

    Args:
        arrived: `time.time()` of the sweep's arrival, which decides its place.
        journal: of the sweep; empty: every other sweep counts as one of another journal.
    """

    sweep: str
    arrived: float
    journal: str = ""
    _key: bytes = field(init=False)
    _looks: int = 0
    _inside: bool = False
    # By key: the last content of each other ticket, and the monotonic time of its last change.
    _seen: dict[bytes, tuple[bytes, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._key = PREFIX + f"{self.arrived:020.6f}/{uuid.uuid4().hex}".encode()

    def wait(self, lacks: Collection[str], nodes: Collection[str]) -> list[Ticket]:
        """Enter the line, or stay in it; return those of other journals that arrived earlier."""
        self._looks += 1
        ticket = Ticket(self.sweep, sorted(lacks), sorted(nodes), self._looks, self.journal)
        _internal_kv_put(self._key, json.dumps(asdict(ticket)), namespace=NAMESPACE)
        self._inside = True
        return [ticket for key, ticket in self._foreign() if key < self._key]

    def others(self) -> list[Ticket]:
        """Return all sweeps of other journals that wait, whenever they arrived."""
        return [ticket for _, ticket in self._foreign()]

    def leave(self) -> None:
        """Leave the line, if this sweep is in it."""
        if self._inside:
            self._inside = False
            _internal_kv_del(self._key, namespace=NAMESPACE)

    def _foreign(self) -> list[tuple[bytes, Ticket]]:
        tickets = self._live()
        return [pair for pair in tickets if not self.journal or pair[1].journal != self.journal]

    def _live(self) -> list[tuple[bytes, Ticket]]:
        """Return the other drivers' tickets in the order of arrival; delete stale ones."""
        now = time.monotonic()
        contents = {
            key: content
            for key in sorted(_internal_kv_list(PREFIX, namespace=NAMESPACE))
            if key != self._key
            and (content := _internal_kv_get(key, namespace=NAMESPACE)) is not None
        }
        unchanged = {key: seen for key, seen in self._seen.items() if contents.get(key) == seen[0]}
        self._seen = {key: (content, now) for key, content in contents.items()} | unchanged
        for key in [key for key, (_, since) in unchanged.items() if now - since > STALE_S]:
            _internal_kv_del(key, namespace=NAMESPACE)
            del self._seen[key], contents[key]
        return [(key, Ticket(**json.loads(content))) for key, content in contents.items()]
