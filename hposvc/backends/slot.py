"""One slot of the pool: a placement group, its crew, and the order it has."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

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
    """Ranks that carry out one order after the other, and what they take of the cluster.

    What happens to it is posted from other threads: Ray's, and its leader's.
    """

    name: str  # SWEEP/slot-n
    place: Place
    resources: Resources
    switchboard: Switchboard
    post: Post
    state: Literal["placing", "starting", "ready", "closing"] = "placing"
    order: Order | None = None
    farewell: BackendEvent | None = None  # to be told once the ranks are gone
    crew: Crew = field(init=False)
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
        bundles = [bundle(self.resources)] * self.resources.workers
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

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Give it an order; it must be ready and idle."""
        self.order = order
        self.crew.carry_out(assignment(order, environment))

    def decide(self, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision on the present order to the leader."""
        if self.order is not None:
            self.crew.decide(self.order.id, verdict)

    def close(self, farewell: BackendEvent | None = None) -> None:
        """Kill everything; when the last rank is gone, `farewell` may be told."""
        if self.state == "closing":
            return
        self.state, self.farewell = "closing", farewell
        self.crew.dismiss()

    def release(self) -> None:
        """Give the resources back; the ranks are gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None
