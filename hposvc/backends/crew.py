"""The ranks of a slot in its placement group, and the leader in this process that they call."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainables.batched.leading import BatchLeader
from trainables.slots.assignment import Assignment, Place
from trainables.slots.leader import Leader, Switchboard
from trainables.slots.ranks import Rank
from trainables.slots.wire import Message

GONE_S = 20.0  # for killed ranks to be gone

Happening = Literal["said", "gone"]  # the leader spoke; a rank is gone
Post = Callable[[Happening, "Future[Any] | Message"], None]


@dataclass(eq=False)
class Crew:
    """Ranks that carry out one order after the other, until they are dismissed.

    What happens to them is posted from other threads: Ray's, and the leader's.
    """

    name: str  # SWEEP/slot-n
    place: Place
    options: Mapping[str, Any]  # what Ray is to give each rank
    switchboard: Switchboard
    post: Post
    present: int = 0  # ranks whose process may live
    _leader: Leader | BatchLeader = field(init=False)
    _ranks: list[Any] = field(default_factory=list)
    _ends: list["Future[Any]"] = field(default_factory=list)  # of the ranks

    def __post_init__(self) -> None:
        place, say = self.place, partial(self.post, "said")
        if place.training.batched > 1:
            self._leader = BatchLeader(say, place.stall_s)
        else:
            self._leader = Leader(place.world_size, say, place.stall_s)

    def launch(self, group: PlacementGroup) -> None:
        """Start a rank in each bundle; they call their leader."""
        self.switchboard.connect(self.name, self._leader)
        for rank in range(self.place.world_size):
            name = f"{self.name}/rank-{rank}"
            actor: Any = (
                ray.remote(Rank)
                .options(
                    name=name,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
                    max_restarts=0,
                    **self.options,
                )
                .remote(rank, self.place)
            )
            self._ranks.append(actor)
            self.present += 1
            served: Any = actor.serve.options(name=name).remote(self.switchboard.call(self.name))
            self._ends.append(served.future())
            self._ends[rank].add_done_callback(partial(self.post, "gone"))

    def rank_of(self, end: "Future[Any]") -> int:
        """Whose end this is, which was posted."""
        return self._ends.index(end)

    def carry_out(self, task: Assignment) -> None:
        """Hand an order to the ranks, which must be up and have room."""
        self._leader.carry_out(task)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision on to the leader."""
        self._leader.decide(order, verdict)

    def leave(self, why: str) -> None:
        """End the order at its next report, before its time; several at once all with theirs."""
        self._leader.leave(why)

    def dismiss(self) -> None:
        """Kill the ranks; `gone` is posted for each."""
        self.switchboard.disconnect(self.name)
        for actor in self._ranks:
            ray.kill(actor)


def plainly(error: BaseException) -> str:
    """What happened, without Ray's own stack."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    if isinstance(error, RayActorError):
        last = str(error).strip().splitlines()[-1].strip()  # the cause, where there is one
        hint = "; install it on every node of the cluster" if "No module named" in last else ""
        return f"a process of the slot died: {last}{hint}"
    return f"{type(error).__name__}: {error}"


def hopeless(error: BaseException | None) -> bool:
    """Whether a rank that died of this as it started will do so every time."""
    unreached = (OSError, EOFError)  # its leader's connection: not the trainable's fault
    return isinstance(error, RayTaskError) and not isinstance(error.cause, unreached)
