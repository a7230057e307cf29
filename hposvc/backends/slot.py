"""One slot of the pool: a placement group, its crew, and the orders it has."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from hposvc.backends.backend import assignment
from hposvc.backends.crew import Crew, Happening
from hposvc.backends.placing import STRATEGIES, bundle, options, selectors
from hposvc.events import BackendEvent, Order
from hposvc.spec import Resources
from trainables.slots.assignment import Place
from trainables.slots.leader import Switchboard
from trainables.slots.wire import Message

Signal = Literal["placed"] | Happening  # the group is placed; or of its crew
Post = Callable[["Slot", Signal, "Future[Any] | Message"], None]


@dataclass(eq=False)
class Slot:
    """Ranks that carry out orders, and what they take of the cluster.

    One order after the other, or with training.batched so many at once.

    What happens to it is posted from other threads: Ray's, and its leader's.
    """

    name: str  # SWEEP/slot-n
    place: Place
    resources: Resources
    switchboard: Switchboard
    post: Post
    state: Literal["placing", "starting", "ready", "closing"] = "placing"
    orders: dict[int, Order] = field(default_factory=dict)
    leaving: str = ""  # why its place is taken from it; empty: it is not
    farewells: Sequence[BackendEvent] = ()  # to be told once the ranks are gone
    crew: Crew = field(init=False)
    asked_at: float = 0.0  # monotonic seconds; when it asked for its place
    _group: PlacementGroup | None = None

    def __post_init__(self) -> None:
        self.crew = Crew(
            self.name,
            self.place,
            options(self.resources),
            self.switchboard,
            lambda happening, what: self.post(self, happening, what),
        )

    def reserve(self) -> None:
        """Ask for the placement group."""
        self.asked_at = time.monotonic()
        bundles = [bundle(self.resources)] * self.resources.ranks
        strategy = STRATEGIES[self.resources.placement]
        labels = selectors(self.resources) or None
        self._group = placement_group(
            bundles, strategy=strategy, name=self.name, bundle_label_selector=labels
        )
        ready = self._group.ready().future()
        ready.add_done_callback(lambda future: self.post(self, "placed", future))

    def launch(self) -> None:
        """Start the ranks in the group."""
        assert self._group is not None  # it was placed
        self.state = "starting"
        self.crew.launch(self._group)

    @property
    def room(self) -> int:
        """How many more orders it takes now."""
        if self.state != "ready" or self.leaving:
            return 0
        return self.place.training.batched - len(self.orders)

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Give it an order; it must have room."""
        self.orders[order.id] = order
        self.crew.carry_out(assignment(order, environment))

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision on one of its orders to the leader."""
        self.crew.decide(order, verdict)

    def nodes(self) -> list[str]:
        """Ray's id of each rank's node, by rank; empty before it has its place."""
        if self._group is None or self.state == "placing":
            return []
        found = placement_group_table(self._group)["bundles_to_node_id"]
        return [str(found[rank]) for rank in range(self.resources.ranks)]

    def leave(self, why: str) -> None:
        """Take no more orders; those that it has end at their next report, to go on elsewhere."""
        self.leaving = why
        self.crew.leave(why)

    def close(self, farewells: Sequence[BackendEvent] = ()) -> None:
        """Kill everything; when the last rank is gone, `farewells` may be told."""
        if self.state == "closing":
            return
        self.state, self.farewells = "closing", farewells
        self.crew.dismiss()

    def release(self) -> None:
        """Give the resources back; the ranks are gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
