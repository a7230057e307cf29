"""Nodes that slots are to leave: unfit or slow ones, those where slots die, those that go."""

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import ray
from ray._private.state import state as cluster_state  # no public name exists (Ray 2.60)

from cluster import quarantine
from cluster.fitness import faults
from cluster.inspection import Inspection, kept
from hposvc.backends.backend import OutOfReach, Setting
from hposvc.backends.joined import Joined
from hposvc.backends.losses import ROW, Losses
from hposvc.backends.slot import Slot
from hposvc.events import BackendEvent, Cause, Failed
from trainables.slots.wire import Reported
from trainables.watching import straggling
from trainables.watching.straggling import REPORTS, Seen

log = logging.getLogger(__name__)
LOST: tuple[Cause, ...] = ("infra", "stalled")  # what may be the doing of a slot's node
ASKING_S = 5.0  # between questions to Ray about its nodes: one takes about a millisecond


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
    _places: dict[str, list[str]] = field(default_factory=dict)  # the nodes of its ranks, by slot
    _told: set[str] = field(default_factory=set)  # ids of nodes
    _losses: Losses = field(default_factory=Losses)
    _inspection: Inspection = field(default_factory=Inspection)
    _asked_at: float = field(default_factory=time.monotonic)
    looking: bool = field(init=False)  # at the nodes that are there at first: a moment

    def __post_init__(self) -> None:
        self._inspection.look(self.joined.choice())
        self.looking = self._inspection.busy

    def due(self) -> list[Departure]:
        """The nodes that were found unfit since this was last asked, and those that Ray drains."""
        found = self._unfit()
        self.looking = self.looking and self._inspection.busy
        if time.monotonic() - self._asked_at < ASKING_S:
            return found
        self._asked_at = time.monotonic()
        self._inspection.look(self.joined.choice())
        return [*found, *self._drained()]

    def settle(self, slot: Slot) -> None:
        """A slot is up: while it lives Ray knows where."""
        self._nodes(slot)

    def serve(self, slot: Slot, ended: bool) -> None:
        """A slot works: it reported, or an order that it had is over."""
        if self._losses.rows:
            self._losses.serve(self._nodes(slot), ended)

    def over(self, slot: Slot, event: BackendEvent) -> list[Departure]:
        """The node to leave, if an order's end that costs its slot shows that slots die there."""
        if isinstance(event, Failed) and event.cause in LOST:
            return [] if event.damaged else self._lose(slot, [event.trial], None)
        self.serve(slot, ended=True)
        return []

    def lose(self, slot: Slot, rank: int | None) -> list[Departure]:
        """The same of a slot that died.

        Args:
            rank: whose end was the slot's; None: it is not known.
        """
        if slot.leaving:
            return []
        return self._lose(slot, [order.trial for order in slot.orders.values()], rank)

    def hear(self, slot: Slot, report: Reported) -> list[Departure]:
        """The node to leave, if a report shows it to be slow and the spec has that drained."""
        score = report.metrics.get("perf/straggler")
        rank = report.metrics.get("perf/straggler_rank")
        ranks = slot.resources.ranks
        if score is None or rank is None or self._unequal(slot, report.order):
            return []
        reports = self._reports.setdefault(slot.name, deque(maxlen=REPORTS))
        reports.append(straggling.seen(int(rank), score, ranks))
        found = straggling.straggler(list(reports))
        node = None if found is None else slot.nodes()[found.rank]
        if found is None or node is None or node in self._told:
            return []
        return self._judge(node, found, report.trial)

    def forget(self, slot: Slot) -> None:
        """This slot is no more."""
        self._reports.pop(slot.name, None)
        self._places.pop(slot.name, None)

    def _nodes(self, slot: Slot) -> list[str]:
        """Where a slot's ranks are, by rank; asked of Ray once."""
        if not (found := self._places.get(slot.name)):
            found = self._places[slot.name] = slot.nodes()
        return found

    def _lose(self, slot: Slot, trials: list[str], rank: int | None) -> list[Departure]:
        nodes = self._nodes(slot)
        blamed = set(nodes if rank is None else nodes[rank : rank + 1])
        alive = {str(each["NodeID"]) for each in ray.nodes() if each["Alive"]}
        if len(blamed) != 1 or not blamed <= alive:
            return []  # it has no place yet, nobody knows who was first, or the whole node went
        [node] = blamed
        if not self._losses.lose(node, trials) or node in self._told:
            return []
        why = f"slots die on node {_name(node)}, {ROW} in a row before an order was done there"
        return self._banish(node, why)

    def _unequal(self, slot: Slot, order: int) -> bool:
        """Whether its ranks have unequal work: the stages of a pipeline."""
        own = slot.orders[order].params.get("training.strategy") if order in slot.orders else None
        return (own or self.setting.spec.training.strategy) == "pipeline"

    def _judge(self, node: str, slow: Seen, trial: str) -> list[Departure]:
        """Tell that a node is slow, and have it left if that is wanted and can be done."""
        why = (
            f"rank {slow.rank} on node {_name(node)} is {slow.factor:.1f} times as slow as its "
            f"like, in {REPORTS} reports in a row"
        )
        if self.setting.spec.failure.straggler == "drain":
            return self._banish(node, why, f" (now of {trial})", " (failure.straggler: drain)")
        self._told.add(node)
        what = "%s: %s (now of %s); failure.straggler: drain leaves it"
        log.warning(what, self.setting.sweep, why, trial)
        return []

    def _unfit(self) -> list[Departure]:
        """The nodes that did not stand the first look; none if that is most of all that there are.

        It is not the nodes, then: the driver's own clock is off, say.
        """
        judged = self._inspection.judged()
        unfit = {
            node: f"node {fitness.name} is unfit: {fitness.unfit}"
            for node, fitness in judged.items()
            if fitness.unfit
        }
        if not unfit:
            return []
        known = kept()
        bad = {node for node, there in known.items() if any(each.fatal for each in faults(there))}
        if 2 * len(bad | unfit.keys()) > (there := len(known)):
            told = "; ".join(unfit.values())
            log.warning(
                "%s: most of %d nodes, so none is held: %s", self.setting.sweep, there, told
            )
            return []
        return [each for node, why in unfit.items() for each in self._banish(node, why)]

    def _drained(self) -> list[Departure]:
        """The nodes that Ray has begun to drain."""
        fresh = set(cluster_state.get_draining_nodes()) - self._told
        self._told |= fresh
        return [Departure(node, f"Ray drains node {_name(node)}") for node in sorted(fresh)]

    def _banish(self, node: str, why: str, whose: str = "", rule: str = "") -> list[Departure]:
        """Have a node left and held, if the others have room for a slot; told in any case.

        Args:
            whose: for the log alone.
            rule: for the orders that are there.
        """
        self._told.add(node)
        name, sweep = _name(node), self.setting.sweep
        try:
            self.joined.exclude(node)
        except OutOfReach:
            what = "%s: %s%s; it goes on there: the other nodes have no room for a slot"
            log.warning(what, sweep, why, whose)
            return []
        try:
            quarantine.hold(self.setting.home, name, f"{sweep}: {why}")
        except quarantine.BadName:
            log.warning("%s: %s%s; nothing new of this sweep starts there", sweep, why, whose)
        else:
            what = "%s: %s%s; nothing new starts there until: hposvc cluster lift %s"
            log.warning(what, sweep, why, whose, name)
        return [Departure(node, f"{why}{rule}")]


def leave(slots: Iterable[Slot], departure: Departure) -> list[Slot]:
    """Have the orders on a node end at their next report; returns the slots to be closed.

    They are those there without an order, and those that have no place yet: it may be there.
    """
    there = [slot for slot in slots if slot.state == "placing" or departure.node in slot.nodes()]
    for slot in there:
        slot.leave(departure.why)
    return [slot for slot in there if not slot.orders]


def _name(node: str) -> str:
    return next((str(each["NodeName"]) for each in ray.nodes() if each["NodeID"] == node), node)
