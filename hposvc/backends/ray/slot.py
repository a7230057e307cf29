"""A slot of the pool: a placement group, its ranks, their coordinator, and their orders."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.launch import NAMESPACE
from hposvc.backends.ray.placement import (
    STRATEGIES,
    bundles_by_node,
    label_selectors,
    rank_options,
    reserved,
)
from hposvc.events import BackendEvent
from hposvc.queue.claim import Held
from hposvc.spec.sections import Resources
from trainables.contract import Assignment, Message, Order, SlotConfig
from trainables.monitoring.slow_ranks import REPORTS, SlowestRank
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.ranks import Rank
from trainables.sharing.lane_coordinators import LaneCoordinators

# The placement group is ready; the coordinator sent a message; a rank exited.
Signal = Literal["placed", "message", "exited"]
Post = Callable[["Slot", Signal, "Future[Any] | Message"], None]


@dataclass(eq=False)
class Slot:
    """Ranks that carry out orders, and the cluster resources that they hold.

    Orders run one after the other, or `training.orders_at_once` at once. `post` is called from
    other threads: Ray's, and the coordinator's.
    """

    name: str  # SWEEP/slot-n
    config: SlotConfig
    resources: Resources
    switchboard: Switchboard
    post: Post
    runtime_env: Mapping[str, object] = field(default_factory=dict)  # of the ranks, from Ray
    owner: str = ""  # of the sweep; empty: unknown
    state: Literal["placing", "starting", "ready", "closing"] = "placing"
    orders: dict[int, Order] = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)  # orders that have sent a report
    leaving: str = ""  # why the slot must leave its node; empty: it need not
    # The slowest rank of each of the last reports.
    slowest: deque[SlowestRank] = field(default_factory=lambda: deque(maxlen=REPORTS))
    present: int = 0  # ranks whose process may live
    final_events: Sequence[BackendEvent] = ()  # returned to the driver once the ranks are gone
    requested_at: float = 0.0  # monotonic seconds; when the placement group was requested
    launched_at: float = 0.0  # ... when its ranks began to start
    ready_at: float | None = None  # ... when they were ready; None: they are not
    _group: PlacementGroup | None = None
    _bundle_nodes: Mapping[int, str] = field(default_factory=dict)  # Ray's id of each one's node
    _coordinator: Coordinator | LaneCoordinators = field(init=False)
    _ranks: list[Any] = field(default_factory=list)
    _exits: list["Future[Any]"] = field(default_factory=list)  # done when the rank has exited

    def __post_init__(self) -> None:
        config, post_message = self.config, partial(self.post, self, "message")
        if (lanes := config.training.orders_at_once) > 1:
            self._coordinator = LaneCoordinators(
                lanes, config.world_size, post_message, config.stall_s
            )
        else:
            self._coordinator = Coordinator(config.world_size, post_message, config.stall_s)

    def reserve(self) -> None:
        """Request the placement group."""
        self.requested_at = time.monotonic()
        bundles = [reserved(self.resources, bool(self.config.datasets))] * self.resources.ranks
        strategy = STRATEGIES[self.resources.placement]
        labels = label_selectors(self.resources) or None
        self._group = placement_group(
            bundles, strategy=strategy, name=self.name, bundle_label_selector=labels
        )
        self._group.ready().future().add_done_callback(partial(self.post, self, "placed"))

    def launch(self) -> None:
        """Start a rank in each bundle of the group; the ranks call their coordinator."""
        assert self._group is not None  # it was placed
        self.state, self.launched_at = "starting", time.monotonic()
        self.switchboard.connect(self.name, self._coordinator)
        self._bundle_nodes = placement_group_table(self._group)["bundles_to_node_id"]
        options = rank_options(self.resources, self.runtime_env, bool(self.config.datasets))
        # Neighbouring ranks exchange most: those of a tensor group, or of a pipeline.
        for rank, number in enumerate(bundles_by_node(self._bundle_nodes)):
            name = f"{self.name}/rank-{rank}"
            actor: Any = (
                ray.remote(Rank)
                .options(
                    name=name,
                    namespace=NAMESPACE,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, number),
                    max_restarts=0,
                    **options,
                )
                .remote(rank, self.config, f"{name} of {self.owner}" if self.owner else name)
            )
            self._ranks.append(actor)
            self.present += 1
            exited: Any = actor.serve.options(name=name).remote(self.switchboard.call(self.name))
            self._exits.append(exited.future())
            self._exits[rank].add_done_callback(partial(self.post, self, "exited"))

    @property
    def free_places(self) -> int:
        """How many more orders the slot accepts now."""
        if self.state != "ready" or self.leaving:
            return 0
        return self.config.training.orders_at_once - len(self.orders)

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Start an order; `free_places` must be above 0."""
        self.orders[order.id] = order
        self._coordinator.carry_out(Assignment(order, environment))

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision about an order of the slot to the coordinator."""
        self._coordinator.decide(order, verdict)

    def nodes(self) -> list[str]:
        """Return Ray's id of each rank's node, by rank; empty before the slot is placed."""
        nodes = self._bundle_nodes
        return [nodes[number] for number in bundles_by_node(nodes)]

    def held(self) -> Held:
        """Return what the slot is in its sweep's claim; it must be placed."""
        now, ready_at = time.monotonic(), self.ready_at
        work_s = None if ready_at is None else now - ready_at
        start_s = (now if ready_at is None else ready_at) - self.launched_at
        return Held(self.name, dict(Counter(self.nodes())), start_s=start_s, work_s=work_s)

    def rank_of(self, exited: "Future[Any]") -> int:
        """Return the rank whose exit was posted with this future."""
        return self._exits.index(exited)

    def leave(self, why: str) -> None:
        """Accept no more orders; present ones end at their next report and continue elsewhere."""
        self.leaving = why
        self._coordinator.leave(why)

    def close(self, final_events: Sequence[BackendEvent] = ()) -> None:
        """Kill the ranks; when the last is gone, the pool releases the slot.

        Args:
            final_events: the ends of the slot's orders, which the pool then returns.
        """
        if self.state == "closing":
            return
        self.state, self.final_events = "closing", final_events
        self.switchboard.disconnect(self.name)
        for actor in self._ranks:
            ray.kill(actor)

    def release(self) -> None:
        """Release the placement group; the ranks must be gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
