"""Nodes that a cluster does not have yet: how a sweep asks Ray's autoscaler for them.

The autoscaler starts nodes for placement groups that wait. A sweep requests the groups of its slots
within its share of the present nodes, so the autoscaler does not see what it lacks beyond. For each
such slot the driver keeps one more group, which may be placed on new nodes only: it takes nothing
from other sweeps, and as soon as it is placed it is removed, since the new node is shared out then.

`ray.autoscaler.sdk.request_resources` would do the same worse (Ray 2.60): a call replaces the last
one of the whole cluster, also a user's, so one driver would have to speak for all; and it stands
until somebody takes it back, so a driver that is killed leaves its nodes running for ever. Groups
add up, over several journals too, and Ray removes them with their driver.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS  # no public name (Ray 2.60)
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.autoscaler.v2.utils import is_autoscaler_v2
from ray.experimental.internal_kv import _internal_kv_get  # no public name (Ray 2.60)
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from hposvc.backends.ray.placement import STRATEGIES, bundle, excluding_nodes, label_selectors
from hposvc.spec.sections import Resources

MOST = 64  # slots for which nodes are asked at a time
READ_ONLY = "node_"  # begins the types of nodes where Ray's monitor only looks on


@dataclass
class NewNodes:
    """The slots of a sweep for which the autoscaler is asked for nodes; Ray must be connected."""

    sweep: str
    _groups: list[PlacementGroup] = field(default_factory=list)
    _asked: int = 0  # groups so far: a removed one keeps its name for a moment

    def __len__(self) -> int:
        return len(self._groups)

    def ask(self, resources: Resources, slots: int) -> None:
        """Ask for room for so many more slots, in place of what was asked for before."""
        placed = [group for group in self._groups if _is_placed(group)]
        waiting = [group for group in self._groups if group not in placed]
        slots = min(slots, MOST)
        for group in [*placed, *waiting[slots:]]:
            remove_placement_group(group)
        self._groups = waiting[:slots]
        if len(self._groups) < slots and not placed:  # what came is shared out first
            alive = [str(node["NodeID"]) for node in ray.nodes() if node["Alive"]]
            others = excluding_nodes(resources, alive)
            self._groups += [self._request(others) for _ in range(slots - len(self._groups))]

    def _request(self, resources: Resources) -> PlacementGroup:
        self._asked += 1
        group: PlacementGroup = placement_group(
            [bundle(resources)] * resources.ranks,
            strategy=STRATEGIES[resources.placement],
            name=f"{self.sweep}/new-node-{self._asked}",
            bundle_label_selector=label_selectors(resources) or None,
        )
        return group


def may_grow() -> bool | None:
    """Return whether the cluster may have an autoscaler that starts nodes; None: not known yet.

    Ray runs its monitor, which is the autoscaler, on each cluster; it first reports seconds after
    the head has started. Version 1 reports node types of its own making where it has no
    configuration; version 2 does not say whether it has one.
    """
    if is_autoscaler_v2():
        return True
    report = _report()
    return (
        not any(name.startswith(READ_ONLY) for name in report["active_nodes"]) if report else None
    )


def starts_nodes() -> bool:
    """Return whether the autoscaler is starting nodes now."""
    if is_autoscaler_v2():
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        return bool(status.pending_launches or status.pending_nodes)
    report = _report()
    return bool(report) and bool(report["pending_launches"] or report["pending_nodes"])


def _report() -> Mapping[str, Any]:
    """Return what version 1 last reported of its nodes; empty: nothing yet."""
    status = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    return {} if not status else dict(json.loads(status).get("autoscaler_report") or {})


def _is_placed(group: PlacementGroup) -> bool:
    return str(placement_group_table(group)["state"]) == "CREATED"
