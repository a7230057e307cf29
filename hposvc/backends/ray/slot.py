"""A slot of the pool: a placement group, its ranks, and the orders that they carry out."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    remove_placement_group,
)

from hposvc.backends.ray.placement import STRATEGIES, bundle, label_selectors, rank_options
from hposvc.backends.ray.rank_group import RankGroup, RankSignal, bundles_by_node
from hposvc.events import BackendEvent
from hposvc.spec import Resources
from trainables.order import Order
from trainables.runtime.assignment import Assignment, SlotConfig
from trainables.runtime.coordinator import Switchboard
from trainables.runtime.wire import Message

Signal = Literal["placed"] | RankSignal  # the placement group is ready; or a signal of the ranks
Post = Callable[["Slot", Signal, "Future[Any] | Message"], None]


@dataclass(eq=False)
class Slot:
    """Ranks that carry out orders, and the cluster resources that they hold.

    Orders run one after the other, or `training.trials_per_process` at once. `post` is called from
    other threads: Ray's, and the coordinator's.
    """

    name: str  # SWEEP/slot-n
    config: SlotConfig
    resources: Resources
    switchboard: Switchboard
    post: Post
    runtime_env: Mapping[str, object] = field(default_factory=dict)  # of the ranks, from Ray
    state: Literal["placing", "starting", "ready", "closing"] = "placing"
    orders: dict[int, Order] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)  # orders that have sent a report
    leaving: str = ""  # why the slot must leave its node; empty: it need not
    final_events: Sequence[BackendEvent] = ()  # returned to the driver once the ranks are gone
    ranks: RankGroup = field(init=False)
    requested_at: float = 0.0  # monotonic seconds; when the placement group was requested
    _group: PlacementGroup | None = None

    def __post_init__(self) -> None:
        self.ranks = RankGroup(
            self.name,
            self.config,
            rank_options(self.resources, self.runtime_env),
            self.switchboard,
            lambda signal, payload: self.post(self, signal, payload),
        )

    def reserve(self) -> None:
        """Request the placement group."""
        self.requested_at = time.monotonic()
        bundles = [bundle(self.resources)] * self.resources.ranks
        strategy = STRATEGIES[self.resources.placement]
        labels = label_selectors(self.resources) or None
        self._group = placement_group(
            bundles, strategy=strategy, name=self.name, bundle_label_selector=labels
        )
        ready = self._group.ready().future()
        ready.add_done_callback(lambda future: self.post(self, "placed", future))

    def launch(self) -> None:
        """Start the ranks in the group."""
        assert self._group is not None  # it was placed
        self.state = "starting"
        self.ranks.launch(self._group)

    @property
    def free_places(self) -> int:
        """How many more orders the slot accepts now."""
        if self.state != "ready" or self.leaving:
            return 0
        return self.config.training.trials_per_process - len(self.orders)

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Start an order; `free_places` must be above 0."""
        self.orders[order.id] = order
        self.ranks.coordinator.carry_out(Assignment(order, environment))

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision about an order of the slot to the coordinator."""
        self.ranks.coordinator.decide(order, verdict)

    def nodes(self) -> list[str]:
        """Return Ray's id of each rank's node, by rank; empty before the slot is placed."""
        nodes = self.ranks.nodes
        return [nodes[bundle] for bundle in bundles_by_node(nodes)]

    def leave(self, why: str) -> None:
        """Accept no more orders; present ones end at their next report and continue elsewhere."""
        self.leaving = why
        self.ranks.coordinator.leave(why)

    def close(self, final_events: Sequence[BackendEvent] = ()) -> None:
        """Kill the ranks; `final_events` are due when the last rank is gone."""
        if self.state == "closing":
            return
        self.state, self.final_events = "closing", final_events
        self.ranks.dismiss()

    def release(self) -> None:
        """Release the placement group; the ranks must be gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
