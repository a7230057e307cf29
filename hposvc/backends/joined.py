"""The Ray cluster that a sweep has joined: what both engines on Ray need of it."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ray
from ray._private.state import available_resources_per_node  # no public name (Ray 2.60)

from cluster import quarantine
from cluster.launch import Connection, Unreachable, connect
from hposvc.backends.backend import OutOfReach, Setting
from hposvc.backends.crew import GONE_S
from hposvc.backends.placing import NODE, count, count_fitting, hosts, labelled, ranks_in, without
from hposvc.backends.sharing import check_shared
from hposvc.spec import Resources
from trainables.slots.assignment import Inherited, Place
from trainables.slots.leader import Switchboard

FRESH_DEATHS = 3  # slots that die before they are ready, in a row, until we give up


class Joined:
    """A connection to the cluster, for one sweep; nobody else works on that sweep.

    Raises:
        OutOfReach: nothing answers, it can never give what the spec asks for, or ranks of an
            earlier driver do not go away.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._connection: Connection | None = None
        self._board: Switchboard | None = None
        self._excluded: set[str] = set()  # ids of nodes that no slot is to be on
        try:
            self._connection = connect(setting.home / "ray", setting.address, setting.runtime_env)
        except Unreachable as error:
            raise OutOfReach(str(error)) from error
        try:
            self.resources = self._unheld()  # of a slot, on nodes that it may have
            self.fitting = _count_fitting(self.resources)  # slots that the cluster has room for
            self._wide = _count_wide(self.resources)
            cores = int(ray.cluster_resources().get("CPU", 1))
            # A process that starts is busy importing: two for each core are up in twice the
            # time, and the first slot could have been at work long before.
            self.at_once = max(1, cores // setting.spec.resources.ranks)
            self._await_strangers()
            check_shared(setting)
            self._board = Switchboard(ray.util.get_node_ip_address())
        except BaseException:
            self.close()
            raise

    @property
    def board(self) -> Switchboard:
        """Where ranks, or whoever leads them, call this process."""
        assert self._board is not None  # there is no half of this object
        return self._board

    def check(self) -> None:
        """See that the cluster is there.

        Raises:
            OutOfReach: it has died.
        """
        try:
            if self._connection is not None:
                self._connection.check()
        except Unreachable as error:
            raise OutOfReach(f"{error}; `hposvc resume {self._setting.sweep}` goes on") from error

    def place(self) -> Place:
        """What the ranks must know of the sweep and of this driver."""
        return replace(
            self._setting.place(),
            path=tuple(str(Path(folder).absolute()) for folder in sys.path),
            inherited=Inherited.here() if self._setting.address is None else None,
        )

    def close(self) -> None:
        """Take no more calls, and leave the cluster."""
        if self._board is not None:
            self._board.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def slots(self, parallel: int | Literal["auto"]) -> int:
        """How many of them are wanted, each with as many trials at once as a process takes."""
        if parallel == "auto":
            return self.fitting
        return min(self.fitting, -(-parallel // self._setting.spec.training.batched))

    def widest(self, slots: int) -> int:
        """The most ranks with which so many slots have room at once; the fewest if none have."""
        widths = [ranks for ranks, fitting in self._wide.items() if fitting >= slots]
        return max(widths, default=self.resources.ranks)

    def free(self) -> int:
        """How many ranks there is room for now, on nodes that they may be on."""
        room = available_resources_per_node()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        now = [{**node, "Resources": room.get(node["NodeID"], {})} for node in nodes]
        suited = hosts(self.resources, now)
        return sum(ranks_in(self.resources, node["Resources"]) for node in suited)

    def exclude(self, node: str) -> None:
        """Have no more slots on a node.

        Args:
            node: Ray's id of it.

        Raises:
            OutOfReach: the others have no room for any.
        """
        rest = without(self._setting.spec.resources, {*self._excluded, node})
        self.fitting = _count_fitting(rest)
        self._wide = _count_wide(rest)
        self._excluded.add(node)
        self.resources = rest

    def choice(self) -> list[Mapping[str, Any]]:
        """The nodes that slots may be on, as `ray.nodes` gives them.

        None where there is no choice: of a single node, or one that the spec names itself.
        """
        if NODE in self._setting.spec.resources.labels:
            return []
        found = hosts(self.resources, [node for node in ray.nodes() if node["Alive"]])
        return found if len(found) > 1 else []

    def _unheld(self) -> Resources:
        held = quarantine.held(self._setting.home)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self._excluded |= {node["NodeID"] for node in nodes if node["NodeName"] in held}
        if nodes and len(self._excluded) == len(nodes):
            listed = "; ".join(f"{name} ({reason})" for name, reason in held.items())
            raise OutOfReach(
                f"all nodes are held: {listed}; `hposvc cluster lift NODE` takes one back"
            )
        return without(self._setting.spec.resources, self._excluded)

    def _await_strangers(self) -> None:
        """Wait until the ranks of an earlier driver are gone: they may still write."""
        if not await_gone(f"{self._setting.sweep}/"):
            raise OutOfReach(
                f"{self._setting.sweep}: ranks of an earlier driver are still at work; "
                "try again when they are gone"
            )


def _count_fitting(resources: Resources) -> int:
    return count_fitting(resources, _suited(resources))


def _count_wide(resources: Resources) -> dict[int, int]:
    """How many slots fit of each number of ranks that a trial may have."""
    nodes = _suited(resources)
    return {ranks: count(resources.of(ranks), nodes) for ranks in resources.widths}


def _suited(resources: Resources) -> list[Mapping[str, float]]:
    return labelled(resources, [node for node in ray.nodes() if node["Alive"]])


def await_gone(prefix: str) -> bool:
    """Wait until no actor has a name that begins so; False if some stay."""
    deadline = time.monotonic() + GONE_S
    while any(name.startswith(prefix) for name in ray.util.list_named_actors()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
