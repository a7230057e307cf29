"""Nodes that slots are to leave: one that is slow for good, or that Ray is about to take away."""

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import ray
from ray._private.state import state as cluster_state  # no public name exists (Ray 2.60)

from cluster import quarantine
from hposvc.backends.backend import OutOfReach, Setting
from hposvc.backends.joined import Joined
from hposvc.backends.slot import Slot
from trainables.slots.wire import Reported
from trainables.watching import straggling
from trainables.watching.straggling import REPORTS, Seen

log = logging.getLogger(__name__)
ASKING_S = 5.0  # between questions to Ray which nodes it drains: one takes about a millisecond


class Departure(NamedTuple):
    """A node to leave."""

    node: str  # Ray's id
    why: str


@dataclass
class Departures:
    """Of one sweep's slots."""

    setting: Setting
    joined: Joined
    _reports: dict[str, deque[Seen]] = field(default_factory=dict)  # by slot
    _told: set[str] = field(default_factory=set)  # ids of nodes
    _asked_at: float = field(default_factory=time.monotonic)

    def drained(self) -> list[Departure]:
        """The nodes that Ray has begun to drain since this was last asked, now and then."""
        if time.monotonic() - self._asked_at < ASKING_S:
            return []
        self._asked_at = time.monotonic()
        fresh = set(cluster_state.get_draining_nodes()) - self._told
        self._told |= fresh
        return [Departure(node, f"Ray drains node {_name(node)}") for node in sorted(fresh)]

    def hear(self, slot: Slot, report: Reported) -> list[Departure]:
        """The node to leave, if a report shows it to be slow and the spec has that drained."""
        score = report.metrics.get("perf/straggler")
        rank = report.metrics.get("perf/straggler_rank")
        ranks = self.setting.spec.resources.workers
        if score is None or rank is None or self._unequal(slot, report.order):
            return []
        reports = self._reports.setdefault(slot.name, deque(maxlen=REPORTS))
        reports.append(straggling.seen(int(rank), score, ranks))
        found = straggling.straggler(list(reports))
        node = None if found is None else slot.nodes()[found.rank]
        if found is None or node is None or node in self._told:
            return []
        self._told.add(node)
        return self._judge(node, found, report.trial)

    def forget(self, slot: Slot) -> None:
        """This slot is no more."""
        self._reports.pop(slot.name, None)

    def _unequal(self, slot: Slot, order: int) -> bool:
        """Whether its ranks have unequal work: the stages of a pipeline."""
        own = slot.orders[order].params.get("training.strategy") if order in slot.orders else None
        return (own or self.setting.spec.training.strategy) == "pipeline"

    def _judge(self, node: str, slow: Seen, trial: str) -> list[Departure]:
        """Tell that a node is slow, and have it left if that is wanted and can be done."""
        name, sweep = _name(node), self.setting.sweep
        why = (
            f"rank {slow.rank} on node {name} is {slow.factor:.1f} times as slow as its like, "
            f"in {REPORTS} reports in a row"
        )
        if self.setting.spec.failure.straggler == "report":
            log.warning("%s: %s (now of %s); failure.straggler: drain leaves it", sweep, why, trial)
            return []
        try:
            self.joined.exclude(node)
        except OutOfReach:
            what = "%s: %s (now of %s); it goes on there: the other nodes have no room for a slot"
            log.warning(what, sweep, why, trial)
            return []
        quarantine.hold(self.setting.home, name, f"{sweep}: {why}")
        what = "%s: %s (now of %s); nothing new starts there until: hposvc cluster lift %s"
        log.warning(what, sweep, why, trial, name)
        return [Departure(node, f"{why} (failure.straggler: drain)")]


def leave(slots: Iterable[Slot], departure: Departure) -> list[Slot]:
    """Have the orders on a node end at their next report; returns the slots there without one."""
    there = [slot for slot in slots if departure.node in slot.nodes()]
    for slot in there:
        slot.leave(departure.why)
    return [slot for slot in there if not slot.orders]


def _name(node: str) -> str:
    return next((str(each["NodeName"]) for each in ray.nodes() if each["NodeID"] == node), node)
