"""One slot of the pool: a placement group, its leader and its ranks, and the order it has."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hposvc.backends.placing import STRATEGIES, bundle
from hposvc.events import BackendEvent, Order
from hposvc.spec import Resources
from trainables.assignment import Assignment, Place
from trainables.leader import Leader
from trainables.ranks import Rank

LEADER_CALLS = 4  # at once: one that waits for messages, a decision, the address

Signal = Literal["placed", "said", "gone"]  # the group is placed; the leader spoke; a rank is gone
Post = Callable[["Slot", Signal, "Future[Any]"], None]


class _Leader(Leader):
    """A leader that knows its node from Ray."""

    def __init__(self, world_size: int) -> None:
        super().__init__(world_size, ray.util.get_node_ip_address())


@dataclass(eq=False)
class Slot:
    """Ranks that carry out one order after the other.

    What happens to it is posted from Ray's threads.
    """

    name: str  # SWEEP/slot-n
    place: Place
    resources: Resources
    post: Post
    state: Literal["placing", "starting", "ready", "closing"] = "placing"
    order: Order | None = None
    farewell: BackendEvent | None = None  # to be told once the ranks are gone
    present: int = 0  # ranks whose process may live
    _group: PlacementGroup | None = None
    _leader: Any = None
    _ranks: list[Any] = field(default_factory=list)

    def reserve(self) -> None:
        """Ask for the placement group."""
        bundles = [bundle(self.resources)] * self.resources.workers
        strategy = STRATEGIES[self.resources.placement]
        self._group = placement_group(bundles, strategy=strategy, name=self.name)
        self._watch(self._group.ready(), "placed")

    def launch(self) -> None:
        """Start leader and ranks in the group."""
        self.state = "starting"
        options = {"num_cpus": 0, "max_concurrency": LEADER_CALLS}
        create = self._actor(_Leader, 0, f"{self.name}/leader", options)
        self._leader = create(self.resources.workers)
        self._watch(self._leader.messages.remote(), "said")
        address = self._leader.address.remote()
        for rank in range(self.resources.workers):
            create = self._actor(Rank, rank, f"{self.name}/rank-{rank}", _options(self.resources))
            actor = create(rank, self.place)
            self._ranks.append(actor)
            self.present += 1
            self._watch(actor.serve.remote(address), "gone")

    def carry_out(self, order: Order, environment: dict[str, str]) -> None:
        """Give it an order; it must be ready and idle."""
        self.order = order
        task = Assignment(
            order.id,
            order.trial,
            order.params,
            order.start,
            order.first,
            order.until,
            order.milestones,
            environment,
        )
        self._watch(self._leader.carry_out.remote(task), "said")

    def listen(self) -> None:
        """Wait for what comes next of the order."""
        self._watch(self._leader.messages.remote(), "said")

    def decide(self, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision on the present order to the leader."""
        if self.order is not None and self.state == "ready":
            self._leader.decide.remote(self.order.id, verdict)

    def close(self, farewell: BackendEvent | None = None) -> None:
        """Kill everything; when the last rank is gone, `farewell` may be told."""
        if self.state == "closing":
            return
        self.state, self.farewell = "closing", farewell
        for actor in (*self._ranks, self._leader):
            if actor is not None:
                ray.kill(actor)

    def release(self) -> None:
        """Give the resources back; the ranks are gone."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _actor(self, kind: type, index: int, name: str, options: dict[str, Any]) -> Any:
        assert self._group is not None  # it was placed
        strategy = PlacementGroupSchedulingStrategy(self._group, index)
        return (
            ray.remote(kind)
            .options(name=name, scheduling_strategy=strategy, max_restarts=0, **options)
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
