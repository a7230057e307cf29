"""The Ray cluster that a sweep runs on, as both backends on Ray use it."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray
from ray._private.state import available_resources_per_node  # no public name (Ray 2.60)
from ray._private.state import state as cluster_state

from cluster import quarantine
from cluster.launch import NAMESPACE, Connection, connect
from cluster.own_ray import Unreachable, find_others, own_address
from cluster.retries import wait_until
from hposvc.backends.backend import Setting, SlotNeeds
from hposvc.backends.ray.autoscaling import NewNodes, may_grow, starts_nodes
from hposvc.backends.ray.placement import (
    NODE,
    bundle,
    count_ranks,
    count_slots,
    describe_needs,
    excluding_nodes,
    labelled_resources,
    require_fitting,
    suitable_nodes,
)
from hposvc.backends.ray.waiting_line import WaitingLine
from hposvc.backends.shared_storage import check_shared
from hposvc.errors import OutOfReach
from hposvc.queue.gangs import Nodes
from hposvc.spec.sections import MARKET, Resources
from trainables.contract import LOOPBACK, Inherited, SlotConfig
from trainables.runtime.coordinator import Switchboard

log = logging.getLogger("hposvc")

FRESH_DEATHS = 3  # slots that die in a row before they are ready, until the driver gives up
HEAD = "node:__internal_head__"  # Ray's mark among the resources of a cluster's head
GONE_S = 20.0  # seconds for killed ranks to be gone
ANSWER_S = 30.0  # for an autoscaler to begin with a node: it looks every five seconds


@dataclass(frozen=True)
class Requestable:
    """Resources that a sweep may request now."""

    resources: Resources | None  # of a slot; None: earlier sweeps come first
    ahead: tuple[str, ...] = ()  # earlier sweeps that wait for the same resources


class RayCluster:
    """A connection to the Ray cluster, for one sweep that no other driver works on.

    Raises:
        OutOfReach: nothing answers, the cluster can never provide what the spec asks for, or
            ranks of an earlier driver do not exit.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._connection: Connection | None = None
        self._board: Switchboard | None = None
        self._full_logged = False  # whether it was logged that no node has room for a slot
        self._excluded: set[str] = set()  # ids of nodes that no slot may use
        self._new_nodes = NewNodes(setting.sweep)
        self._grows: bool | None = False  # whether an autoscaler may add nodes; None: not known yet
        self.avoided: frozenset[str] = frozenset()  # ids of nodes that others' shares need whole
        self.crowded = False  # whether other sweeps want more than they hold
        self.asked_labels: dict[str, str] | None = None  # of the last slot that was requested
        # Of the sweeps that start a Ray together, the first is the one that began first.
        self.line = WaitingLine(setting.sweep, time.time(), setting.journal)
        setting.say(_describe_connecting(setting))
        try:
            self._connection = connect(setting.home / "ray", setting.address, setting.runtime_env)
        except Unreachable as error:
            raise OutOfReach(str(error)) from error
        # Processes of a connection that the user made have its runtime environment.
        self.runtime_env = setting.runtime_env if self._connection.borrowed else {}
        if self._connection.lock is None:  # then the cluster may have other machines
            setting = self._setting = replace(setting, address=self._connection.address)
        for note in notes(setting):
            log.warning("%s: %s", setting.sweep, note)
        try:
            self._grows = None if setting.address else False
            self._find_room()
            self._await_earlier_ranks()
            check_shared(setting)
            # Ray on this machine has no other node, so only local processes need to call here.
            local = setting.address is None
            self._board = Switchboard(LOOPBACK if local else ray.util.get_node_ip_address())
            setting.say("")
        except BaseException:
            self.close()
            raise

    @property
    def switchboard(self) -> Switchboard:
        """The endpoint at which ranks, or their coordinator, call this process."""
        assert self._board is not None  # __init__ sets it or raises
        return self._board

    def check(self) -> None:
        """Check that the cluster is alive.

        Raises:
            OutOfReach: the cluster has died.
        """
        try:
            if self._connection is not None:
                self._connection.check()
        except Unreachable as error:
            raise OutOfReach(
                f"{error}", fix=f"`hposvc resume {self._setting.sweep}` goes on"
            ) from error

    @property
    def answers(self) -> bool:
        """Whether Ray can be asked for something now."""
        return self._connection is None or self._connection.answers

    def log_room_changes(self) -> None:
        """Count the room for slots, and log when no node has any, and when one has room again."""
        self._count_room()
        nodes = suitable_nodes(self.resources, _alive_nodes())
        if count_slots(self.resources, [node["Resources"] for node in nodes]) > 0:
            if self._full_logged:
                log.warning("%s: a node has room for its trials again", self._setting.sweep)
            self._full_logged = False
        elif not self._full_logged:
            self._full_logged = True
            message = (
                "%s: no live node of the cluster has room for a trial; the sweep waits for one"
            )
            log.warning(message, self._setting.sweep)

    def slot_config(self) -> SlotConfig:
        """Return the configuration of a slot; on this machine, with the driver's environment."""
        inherited = Inherited.here() if self._setting.address is None else None
        return replace(self._setting.slot_config(), inherited=inherited)

    def close(self) -> None:
        """Accept no more calls, and disconnect from the cluster."""
        if self._connection is not None:
            self._setting.say("leaving Ray")
        if self._board is not None:
            self._board.close()
        if self._connection is not None:
            if self._connection.answers:
                self.ask_for_nodes(0)
            self._connection.close()
            self._connection = None

    def slots(self, parallel: int | Literal["auto"]) -> int:
        """Return how many slots `parallel` trials need, as far as they fit into the cluster.

        A cluster that an autoscaler enlarges has room for all, except with `auto`.
        """
        if parallel == "auto":
            return self.fitting
        needed = -(-parallel // self._setting.spec.training.orders_at_once)
        return needed if self._may_grow() else min(self.fitting, needed)

    def ask_for_nodes(self, slots: int) -> int:
        """Ask the autoscaler, if there may be one, for nodes for so many slots more.

        Returns:
            For how many it is asked now.
        """
        slots = slots if self._may_grow() else 0
        if slots or self._new_nodes:
            labels = self.resources.labels if self.asked_labels is None else self.asked_labels
            self._new_nodes.ask(replace(self.resources, labels=labels), slots)
        return len(self._new_nodes)

    def _may_grow(self) -> bool:
        """Return whether an autoscaler may add nodes; one that has not reported yet may."""
        if self._grows is None:
            self._grows = may_grow()
        return self._grows is not False

    @property
    def id(self) -> str:
        """The id of the cluster's head, the same for all that are connected to it."""
        heads = (node for node in ray.nodes() if HEAD in node["Resources"])
        return next((str(node["NodeID"]) for node in heads), self._setting.address or "")

    def room(self) -> tuple[Nodes, Nodes]:
        """Return the resources of each live node, and what is free of them now."""
        alive, free = _alive_nodes(), _free_nodes()
        return (
            {node["NodeID"]: node["Resources"] for node in alive},
            {node["NodeID"]: node["Resources"] for node in free},
        )

    def market_of(self, nodes: Sequence[str]) -> str:
        """Return how the nodes with these ids are paid for: spot, on-demand, or both."""
        labels = {node["NodeID"]: node["Labels"].get(MARKET, "") for node in ray.nodes()}
        return " + ".join(sorted({labels.get(node, "") for node in nodes} - {""}))

    def new_slot(self) -> SlotNeeds:
        """Return what a slot with the fewest ranks needs."""
        resources, alive = self.resources, _alive_nodes()
        suited = tuple(sorted(node["NodeID"] for node in suitable_nodes(resources, alive)))
        # A node that lacks a resource is known by its resources.
        nodes = suited if resources.labels else None
        text = describe_needs(resources)
        return SlotNeeds(bundle(resources), resources.ranks, resources.placement, nodes, text)

    def max_workers(self, slots: int) -> int:
        """Return the most ranks with which `slots` slots fit at once; the fewest if none fit."""
        fitting_ranks = [
            ranks for ranks, fitting in self._fitting_by_ranks.items() if fitting >= slots
        ]
        return max(fitting_ranks, default=self.resources.ranks)

    def count_free_ranks(self) -> int:
        """Return how many ranks have room now, on the nodes that slots may use."""
        suited = suitable_nodes(self.resources, _free_nodes())
        return sum(count_ranks(self.resources, node["Resources"]) for node in suited)

    def wait_in_line(self, ranks: int, placed: int) -> Requestable:
        """Wait in line for one more slot, and return what may be requested now.

        Args:
            ranks: of the slot.
            placed: slots that the sweep has.
        """
        resources = self.resources.with_workers(ranks)
        nodes = suitable_nodes(resources, _alive_nodes())
        if count_slots(resources, [node["Resources"] for node in nodes]) <= placed:
            self.line.leave()  # no other sweep's end would help: a node must come first
            return Requestable(resources)
        free, ids = _free_nodes(), {node["NodeID"] for node in nodes}
        amounts = [node["Resources"] for node in free if node["NodeID"] in ids]
        needs = {name: amount * ranks for name, amount in bundle(resources).items() if amount}
        lacks = [
            name
            for name, amount in needs.items()
            if sum(node.get(name, 0.0) for node in amounts) + 1e-4 < amount
        ]
        # Where each resource alone is free, they are not free together, or are being taken.
        ahead = [
            ticket
            for ticket in self.line.wait(lacks or list(needs), ids)
            if ticket.blocks(needs, ids)
        ]
        if not ahead:
            spared = excluding_nodes(self._setting.spec.resources, self._excluded | self.avoided)
            others_fit = bool(ids - self.avoided)
            return Requestable(
                spared.with_workers(ranks) if self.avoided and others_fit else resources
            )
        taken = {node for ticket in ahead for node in ticket.nodes}
        kept = self._excluded | self.avoided
        others = excluding_nodes(self._setting.spec.resources, kept | taken)
        free_others = [node["Resources"] for node in free if node["NodeID"] in ids - taken]
        fits = (
            count_slots(resources, free_others) > 0
            and NODE not in self._setting.spec.resources.labels
        )
        return Requestable(
            others.with_workers(ranks) if fits else None,
            tuple(dict.fromkeys(ticket.sweep for ticket in ahead)),
        )

    def holders(self) -> list[str]:
        """Return the other sweeps that hold resources of the cluster now."""
        groups = ray.util.placement_group_table().values()
        placed = (str(group["name"]) for group in groups if group["state"] == "CREATED")
        sweeps = {name.rpartition("/")[0] for name in placed if "/slot-" in name}
        return sorted(sweeps - {self._setting.sweep, ""})

    def exclude(self, *nodes: str) -> None:
        """Place no more slots on these nodes.

        Args:
            nodes: Ray's ids of the nodes.

        Raises:
            OutOfReach: the remaining nodes have no room for a slot.
        """
        excluded = self._excluded | set(nodes)
        resources = excluding_nodes(self._setting.spec.resources, excluded)
        require_fitting(resources, labelled_resources(resources, _alive_nodes()))
        self._set_excluded(excluded)

    def _set_excluded(self, excluded: set[str]) -> None:
        self._excluded = excluded
        # Of a slot, on the nodes that it may use.
        self.resources = excluding_nodes(self._setting.spec.resources, excluded)
        self._count_room()

    def _count_room(self) -> None:
        """Count the slots that the live nodes have room for; where there is none, one may come."""
        alive, resources = _alive_nodes(), self.resources
        amounts = [node["Resources"] for node in suitable_nodes(resources, alive)]
        self.fitting = max(1, count_slots(resources, amounts))
        self._fitting_by_ranks = {  # by each number of ranks that a trial may have
            ranks: count_slots(resources.with_workers(ranks), amounts)
            for ranks in resources.allowed_workers
        }
        # A starting process is busy importing: with two for each core, all would take twice
        # as long, while the first slot could have been at work long before.
        cores = sum(int(node["Resources"].get("CPU", 0)) for node in alive)
        self.max_starting = max(1, cores // self._setting.spec.resources.ranks)

    def _find_room(self) -> None:
        """Check that nodes have room for a slot, or that the autoscaler begins to start one.

        Raises:
            OutOfReach: neither.
        """
        held = self._held_nodes()
        try:
            self.exclude(*held)
            return
        except OutOfReach:
            if not self._may_grow():
                raise
        self._set_excluded({*held})
        self._setting.say("asking Ray's autoscaler for a node")
        deadline = time.monotonic() + ANSWER_S
        while not starts_nodes():
            self.ask_for_nodes(1)
            time.sleep(0.5)
            came = suitable_nodes(self.resources, _alive_nodes())
            if came or not self._may_grow() or time.monotonic() > deadline:
                self.exclude(*held)
                return

    def candidate_nodes(self) -> list[Mapping[str, Any]]:
        """Return the nodes that slots may use, as `ray.nodes` gives them.

        The list is empty where there is no choice: with a single node, or where the spec itself
        selects nodes by id.
        """
        if NODE in self._setting.spec.resources.labels:
            return []
        nodes = suitable_nodes(self.resources, _alive_nodes())
        return nodes if len(nodes) > 1 else []

    def _held_nodes(self) -> list[str]:
        """Return the ids of the nodes in quarantine.

        Raises:
            OutOfReach: all nodes are.
        """
        quarantined = quarantine.held(self._setting.home)
        nodes = _alive_nodes()
        held = [node["NodeID"] for node in nodes if node["NodeName"] in quarantined]
        if nodes and len(held) == len(nodes):
            reasons = "; ".join(f"{name} ({reason})" for name, reason in quarantined.items())
            raise OutOfReach(
                f"all nodes are held: {reasons}; `hposvc cluster lift NODE` takes one back"
            )
        return held

    def _await_earlier_ranks(self) -> None:
        """Wait until the ranks of an earlier driver are gone, which may still write files."""
        prefix = f"{self._setting.sweep}/"
        if any(name.startswith(prefix) for name in _list_actors()):
            self._setting.say("waiting until ranks of an earlier driver are gone")
        if not await_gone(prefix):
            raise OutOfReach(
                f"{self._setting.sweep}: ranks of an earlier driver are still at work; "
                "try again when they are gone"
            )


def _describe_connecting(setting: Setting) -> str:
    if ray.is_initialized():
        return "using this process's connection to Ray"
    if setting.address is not None:
        return f"joining Ray at {setting.address}"
    return f"{'joining' if own_address(setting.home / 'ray') else 'starting'} Ray on this machine"


def notes(setting: Setting) -> list[str]:
    """Return what users may not expect of the processes in which a sweep's trials will run.

    Args:
        setting: with the address of the cluster; None: this machine's own Ray.
    """
    if setting.address is not None:
        return [
            "trials get the variables of the cluster's nodes and none of this shell; give what "
            "they need in environment.env or environment.secrets of the spec"
        ]
    others = find_others(setting.home / "ray")
    if not others:
        return []
    return [
        f"another Ray runs on this machine, at {' and '.join(others)}; each takes all CPUs and "
        "GPUs for its own, so trials of both compete; use one HPOSVC_HOME, or join by --address"
    ]


def _list_actors() -> list[str]:
    """Return the names of our actors on the cluster, whatever the connection's namespace."""
    actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)  # dicts (Ray 2.60)
    return [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]


def _alive_nodes() -> list[dict[str, Any]]:
    """Return the live nodes but those that Ray drains: it places nothing on them any more."""
    going = cluster_state.get_draining_nodes()
    return [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in going]


def _free_nodes() -> list[Mapping[str, Any]]:
    """Return the live nodes, with the resources that are free on them now."""
    available = available_resources_per_node()
    return [{**node, "Resources": available.get(node["NodeID"], {})} for node in _alive_nodes()]


def await_gone(prefix: str) -> bool:
    """Wait until no actor's name begins with `prefix`; False if some stay for `GONE_S`."""
    return wait_until(
        lambda: not any(name.startswith(prefix) for name in _list_actors()), GONE_S, 0.05
    )
