"""Nodes that slots must leave: unfit, slow or draining nodes, and nodes on which slots die."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import ray
from ray._private.state import state as cluster_state  # no public name exists (Ray 2.60)

from cluster import quarantine
from cluster.inspection import Inspection, stored_results
from cluster.node_health import own_issues
from hposvc.backends.backend import Setting
from hposvc.backends.ray.cluster import RayCluster
from hposvc.backends.ray.node_failures import DEATHS_IN_A_ROW, NodeFailures
from hposvc.backends.ray.slot import Slot
from hposvc.errors import OutOfReach
from hposvc.events import BackendEvent, Cause, Failed
from trainables.contract import STRATEGIES, Report
from trainables.monitoring import slow_ranks
from trainables.monitoring.slow_ranks import REPORTS, SlowestRank

log = logging.getLogger(__name__)
NODE_CAUSES: tuple[Cause, ...] = ("infra", "stalled")  # possibly the fault of a slot's node
DRAIN_CHECK_S = 5.0  # between questions to Ray about its nodes: one takes about a millisecond


class NodeEviction(NamedTuple):
    """A node that slots must leave, and the reason."""

    node: str  # Ray's id
    why: str


@dataclass
class NodeEvictions:
    """Decides which nodes a sweep's slots must leave."""

    setting: Setting
    cluster: RayCluster
    _reported: set[str] = field(default_factory=set)  # ids of nodes already reported
    _failures: NodeFailures = field(default_factory=NodeFailures)
    _inspection: Inspection = field(default_factory=Inspection)
    _asked_at: float = field(default_factory=time.monotonic)
    # The first inspection of the nodes is under way; it takes a moment.
    inspecting: bool = field(init=False)

    def __post_init__(self) -> None:
        self._inspection.look(self.cluster.candidate_nodes())
        self.inspecting = self._inspection.busy

    def find_new(self) -> list[NodeEviction]:
        """Return the nodes found unfit since the last call, and nodes that Ray began to drain."""
        evictions = self._evict_unfit()
        self.inspecting = self.inspecting and self._inspection.busy
        if time.monotonic() - self._asked_at < DRAIN_CHECK_S:
            return evictions
        self._asked_at = time.monotonic()
        self.cluster.log_room_changes()
        self._inspection.look(self.cluster.candidate_nodes())
        draining = set(cluster_state.get_draining_nodes()) - self._reported
        self._reported |= draining
        return evictions + [
            NodeEviction(node, f"Ray drains node {_node_name(node)}") for node in sorted(draining)
        ]

    def record_work(self, slot: Slot, ended: bool) -> None:
        """Record that a slot works: a report came, or one of its orders ended."""
        if self._failures.rows:
            self._failures.record_work(slot.nodes(), ended)

    def on_order_ended(self, slot: Slot, event: BackendEvent) -> list[NodeEviction]:
        """Return the node to leave, if an event that costs a slot shows that the node is faulty."""
        if isinstance(event, Failed) and event.cause in NODE_CAUSES:
            return [] if event.damaged else self._record_death(slot, [event.trial], None)
        self.record_work(slot, ended=True)
        return []

    def on_slot_lost(self, slot: Slot, rank: int | None) -> list[NodeEviction]:
        """Return the node to leave, if the death of a slot shows that the node is faulty.

        Args:
            rank: the rank whose death ended the slot; None: unknown.
        """
        if slot.leaving:
            return []
        return self._record_death(slot, [order.trial for order in slot.orders.values()], rank)

    def on_report(self, slot: Slot, report: Report) -> list[NodeEviction]:
        """Return the node to leave, if a report shows that it is slow and the spec drains it."""
        score = report.metrics.get("perf/straggler")
        rank = report.metrics.get("perf/straggler_rank")
        ranks, order = slot.resources.ranks, slot.orders[report.order]
        strategy = order.params.get("training.strategy") or self.setting.spec.training.strategy
        if score is None or rank is None or STRATEGIES[str(strategy)].stages:  # which are unequal
            return []
        slot.slowest.append(slow_ranks.slowest_rank(int(rank), score, ranks))
        straggler = slow_ranks.straggler(list(slot.slowest))
        node = None if straggler is None else slot.nodes()[straggler.rank]
        if straggler is None or node is None or node in self._reported:
            return []
        return self._report_straggler(node, straggler, order.trial)

    def _record_death(self, slot: Slot, trials: list[str], rank: int | None) -> list[NodeEviction]:
        nodes = slot.nodes()
        blamed = set(nodes if rank is None else nodes[rank : rank + 1])
        alive = {str(info["NodeID"]) for info in ray.nodes() if info["Alive"]}
        if len(blamed) != 1 or not blamed <= alive:
            return []  # the slot was not placed, the first rank to die is unknown, or the node died
        [node] = blamed
        if not self._failures.record_death(node, trials) or node in self._reported:
            return []
        name, count = _node_name(node), DEATHS_IN_A_ROW
        why = f"slots die on node {name}, {count} in a row before an order was done there"
        return self._evict(node, why)

    def _report_straggler(self, node: str, slow: SlowestRank, trial: str) -> list[NodeEviction]:
        """Log that a node is slow; exclude it if the spec says so and other nodes have room."""
        why = (
            f"rank {slow.rank} on node {_node_name(node)} is {slow.factor:.1f} times as slow as "
            f"its peers, in {REPORTS} reports in a row"
        )
        if self.setting.spec.failure.straggler == "drain":
            return self._evict(node, why, f" (now of {trial})", " (failure.straggler: drain)")
        self._reported.add(node)
        message = "%s: %s (now of %s); failure.straggler: drain leaves it"
        log.warning(message, self.setting.sweep, why, trial)
        return []

    def _evict_unfit(self) -> list[NodeEviction]:
        """Exclude and return the nodes that failed their first inspection.

        If most nodes fail, none is excluded: the cause is then not the nodes but, for example,
        the driver's own clock.
        """
        judged = self._inspection.judged()
        unfit = {
            node: f"node {health.name} is unfit: {health.unfit}"
            for node, health in judged.items()
            if health.unfit
        }
        if not unfit:
            return []
        inspected = stored_results()
        bad = {
            node
            for node, results in inspected.items()
            if any(issue.fatal for issue in own_issues(results))
        }
        if 2 * len(bad | unfit.keys()) > (total := len(inspected)):
            reasons = "; ".join(unfit.values())
            log.warning(
                "%s: most of %d nodes, so none is held: %s", self.setting.sweep, total, reasons
            )
            return []
        return [eviction for node, why in unfit.items() for eviction in self._evict(node, why)]

    def _evict(self, node: str, why: str, whose: str = "", rule: str = "") -> list[NodeEviction]:
        """Exclude and quarantine a node, if other nodes have room for a slot; log in any case.

        Args:
            whose: appended to the reason in the log.
            rule: appended to the reason in the eviction, which the node's orders see.
        """
        self._reported.add(node)
        name, sweep = _node_name(node), self.setting.sweep
        try:
            self.cluster.exclude(node)
        except OutOfReach:
            message = "%s: %s%s; it goes on there: the other nodes have no room for a slot"
            log.warning(message, sweep, why, whose)
            return []
        try:
            quarantine.hold(self.setting.home, name, f"{sweep}: {why}")
        except quarantine.BadName:
            log.warning("%s: %s%s; nothing new of this sweep starts there", sweep, why, whose)
        else:
            message = "%s: %s%s; nothing new starts there until: hposvc cluster lift %s"
            log.warning(message, sweep, why, whose, name)
        return [NodeEviction(node, f"{why}{rule}")]


def leave_node(slots: Iterable[Slot], eviction: NodeEviction) -> list[Slot]:
    """Have the orders on a node end at their next report, and return the slots to close now.

    These are the slots there without an order, and those not placed yet, which may be placed there.
    """
    affected = [slot for slot in slots if slot.state == "placing" or eviction.node in slot.nodes()]
    for slot in affected:
        slot.leave(eviction.why)
    return [slot for slot in affected if not slot.orders]


def _node_name(node: str) -> str:
    return next((str(info["NodeName"]) for info in ray.nodes() if info["NodeID"] == node), node)
