"""One slot of the pool: a placement group, its leader and its ranks, and the order it has."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hposvc.backends.backend import assignment
from hposvc.backends.placing import STRATEGIES, bundle
from hposvc.events import BackendEvent, Order
from hposvc.spec import Resources
from trainables.assignment import Place
from trainables.leader import Leader, Switchboard
from trainables.ranks import Rank
from trainables.wire import Message

Signal = Literal["placed", "said", "gone"]  # the group is placed; the leader spoke; a rank is gone
Post = Callable[["Slot", Signal, "Future[Any] | Message"], None]


@dataclass(eq=False)
class Slot:
    """Ranks that carry out one order after the other.

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
    present: int = 0  # ranks whose process may live
    _group: PlacementGroup | None = None
    _leader: Leader | None = None
    _ranks: list[Any] = field(default_factory=list)

    def reserve(self) -> None:
        """Ask for the placement group."""
        bundles = [bundle(self.resources)] * self.resources.workers
        strategy = STRATEGIES[self.resources.placement]
        self._group = placement_group(bundles, strategy=strategy, name=self.name)
        self._watch(self._group.ready(), "placed")

    def launch(self) -> None:
        """Start the ranks in the group; they call their leader."""
        self.state = "starting"
        self._leader = Leader(
            self.resources.workers, lambda message: self.post(self, "said", message)
        )
        self.switchboard.connect(self.name, self._leader)
        for rank in range(self.resources.workers):
            create = self._actor(rank)
            actor = create(rank, self.place)
            self._ranks.append(actor)
            self.present += 1
            self._watch(actor.serve.remote(self.switchboard.call(self.name)), "gone")

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Give it an order; it must be ready and idle."""
        self.order = order
        assert self._leader is not None
        self._leader.carry_out(assignment(order, environment))

    def decide(self, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision on the present order to the leader."""
        if self.order is not None and self._leader is not None:
            self._leader.decide(self.order.id, verdict)

    def close(self, farewell: BackendEvent | None = None) -> None:
        """Kill everything; when the last rank is gone, `farewell` may be told."""
        if self.state == "closing":
            return
        self.state, self.farewell = "closing", farewell
        self.switchboard.disconnect(self.name)
        for actor in self._ranks:
            ray.kill(actor)

    def release(self) -> None:
        """Give the resources back; the ranks are gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _actor(self, rank: int) -> Any:
        assert self._group is not None  # it was placed
        return (
            ray.remote(Rank)
            .options(
                name=f"{self.name}/rank-{rank}",
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, rank),
                max_restarts=0,
                **_options(self.resources),
            )
            .remote
        )

    def _watch(self, ref: Any, signal: Signal) -> None:
        ref.future().add_done_callback(lambda future: self.post(self, signal, future))


def _options(resources: Resources) -> dict[str, Any]:
    wanted = bundle(resources)
    options = {"num_cpus": wanted.pop("CPU"), "num_gpus": wanted.pop("GPU", 0)}
    if "memory" in wanted:
        options["memory"] = wanted.pop("memory")
    return {**options, "resources": wanted}
