"""The ranks of a slot in its placement group, and their coordinator in this process."""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.launch import NAMESPACE
from hposvc.errors import OutOfReach, fail
from trainables.errors import shortened, text_of
from trainables.load import CodeChanged
from trainables.runtime.assignment import SlotConfig
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.ranks import Rank
from trainables.runtime.wire import Message
from trainables.vmapped.coordinator import BatchCoordinator

DIED = "worker process has died"  # Ray (2.60) does not know how, and says so in 600 characters
LOW_MEMORY = re.compile(r"was ([\d.]+ ?GB)(?: used)? / ([\d.]+ ?GB)")  # of the node
GONE_S = 20.0  # seconds for killed ranks to be gone

RankSignal = Literal["message", "exited"]  # the coordinator sent a message; a rank exited
Post = Callable[[RankSignal, "Future[Any] | Message"], None]


@dataclass(eq=False)
class RankGroup:
    """Ranks that carry out one order after the other, until they are dismissed.

    `post` is called from other threads: Ray's, and the coordinator's.
    """

    name: str  # SWEEP/slot-n
    config: SlotConfig
    options: Mapping[str, Any]  # of each rank's actor, for Ray
    switchboard: Switchboard
    post: Post
    present: int = 0  # ranks whose process may live
    nodes: Mapping[int, str] = field(default_factory=dict)  # Ray's id of each bundle's node
    coordinator: Coordinator | BatchCoordinator = field(init=False)
    _ranks: list[Any] = field(default_factory=list)
    _exits: list["Future[Any]"] = field(default_factory=list)  # done when the rank has exited

    def __post_init__(self) -> None:
        config, post_message = self.config, partial(self.post, "message")
        if config.training.trials_per_process > 1:
            self.coordinator = BatchCoordinator(post_message, config.stall_s)
        else:
            self.coordinator = Coordinator(config.world_size, post_message, config.stall_s)

    def launch(self, group: PlacementGroup) -> None:
        """Start a rank in each bundle; the ranks call their coordinator."""
        self.switchboard.connect(self.name, self.coordinator)
        self.nodes = placement_group_table(group)["bundles_to_node_id"]
        # Neighbouring ranks exchange most: those of a tensor group, or of a pipeline.
        for rank, bundle in enumerate(bundles_by_node(self.nodes)):
            name = f"{self.name}/rank-{rank}"
            actor: Any = (
                ray.remote(Rank)
                .options(
                    name=name,
                    namespace=NAMESPACE,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
                    max_restarts=0,
                    **self.options,
                )
                .remote(rank, self.config)
            )
            self._ranks.append(actor)
            self.present += 1
            exited: Any = actor.serve.options(name=name).remote(self.switchboard.call(self.name))
            self._exits.append(exited.future())
            self._exits[rank].add_done_callback(partial(self.post, "exited"))

    def rank_of(self, end: "Future[Any]") -> int:
        """Return the rank whose exit was posted with this future."""
        return self._exits.index(end)

    def dismiss(self) -> None:
        """Kill the ranks; `exited` is posted for each of them."""
        self.switchboard.disconnect(self.name)
        for actor in self._ranks:
            ray.kill(actor)


def bundles_by_node(nodes: Mapping[int, str]) -> list[int]:
    """Return the bundles grouped by node.

    Ray does not promise that bundles of a node are neighbours. Nodes are ordered by their first
    bundle; the bundles of a node keep their order, in which Ray assigns its GPUs.

    Args:
        nodes: the node of each bundle.
    """
    node_order = list(dict.fromkeys(nodes[bundle] for bundle in sorted(nodes)))
    return sorted(nodes, key=lambda bundle: (node_order.index(nodes[bundle]), bundle))


def describe_error(error: BaseException) -> str:
    """Describe the error of a rank in a line, without Ray's own stack."""
    if isinstance(error, RayTaskError):
        error = error.cause
        return f"{type(error).__name__}: {shortened(text_of(error))}"
    if isinstance(error, RayActorError):
        reason = str(error).strip().splitlines()[-1].strip()  # the cause, if Ray gives one
        if DIED in reason:
            return "a process of the slot died, and its log is not here to say why"
        hint = "; install it on every node of the cluster" if "No module named" in reason else ""
        return f"a process of the slot died: {reason}{hint}"
    return f"{type(error).__name__}: {error}"


def died(error: BaseException | None) -> bool:
    """Return whether a rank's process is gone, and not its node."""
    if isinstance(error, OutOfMemoryError):
        return True
    return isinstance(error, RayActorError) and (DIED in f"{error}" or low_memory(error) != "")


def low_memory(error: BaseException | None) -> str:
    """Return what Ray says of its node's memory, if Ray killed the rank to free some."""
    match = LOW_MEMORY.search(f"{error}")
    return f"{match[1]} of the node's {match[2]} were in use" if match else ""


def start_error(error: BaseException) -> Exception:
    """Return the error to raise when no rank can start; `is_permanent` is true of `error`."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, CodeChanged):
        return fail(f"{error.cause}")
    return OutOfReach(f"a rank could not start: {describe_error(error)}")


def is_permanent(error: BaseException | None) -> bool:
    """Whether a rank that died of this error while starting will die every time."""
    # The connection to the coordinator: not the trainable's fault.
    connection_errors = (OSError, EOFError)
    return isinstance(error, RayTaskError) and not isinstance(error.cause, connection_errors)
