"""Hardware inspection of each node of a Ray cluster, before our first use of the node.

Results are stored in the cluster itself for as long as it lives: no node is inspected twice, and
nodes that join later are compared with earlier ones. Inspections run in the background.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.experimental.internal_kv import (
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)  # no public name exists (Ray 2.60)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster import probes
from cluster.node_health import NodeHealth, merge_probes, offset, own_issues, speed_issues

ANSWER_S = 120.0  # as for shared storage; after that a trial will show what is wrong
GPUS_S = 40.0  # for a node to load torch and test its GPUs; reading the sensors takes up to 10 more
NAMESPACE = b"hposvc"
PREFIX = b"inspection/"  # of keys in the cluster's store; Ray's id of a node follows

Node = Mapping[str, Any]  # as returned by `ray.nodes`
ProbeResult = Mapping[str, Any]  # the result of `probes.exercise`, and `clock`


@dataclass(frozen=True)
class _PendingProbe:
    """A probe running on a node."""

    node: Node
    answer: Any
    at: float  # time.time
    before: ProbeResult | None = None  # the result of the first probe; None: this is the first


@dataclass
class Inspection:
    """Inspection of nodes of the cluster that this process has joined."""

    _asked: dict[str, _PendingProbe] = field(default_factory=dict)  # by Ray's id of the node
    _known: set[str] = field(default_factory=set)  # ids of nodes inspected, or being inspected

    def look(self, nodes: Sequence[Node]) -> None:
        """Start inspecting those of the nodes that have not been inspected."""
        if not {node["NodeID"] for node in nodes} - self._known:
            return
        self._known |= stored_results().keys()
        for node in nodes:
            name = node["NodeID"]
            if name not in self._known:
                self._known.add(name)
                self._asked[name] = _PendingProbe(node, exercise(node), time.time())

    @property
    def busy(self) -> bool:
        """Whether some answer may arrive soon, so that waiting for it is worthwhile.

        A probe and a trial should not share a GPU, and no trial should begin on an unfit node.
        """
        now = time.time()
        return any(now - pending.at < ANSWER_S for pending in self._asked.values())

    def judged(self) -> dict[str, NodeHealth]:
        """Return the nodes judged since the last call, by Ray's id.

        A node that seems slow is probed once more before it is judged.
        """
        references = [pending.answer for pending in self._asked.values()]
        if not references:
            return {}
        ready, late = ray.wait(references, num_returns=len(references), timeout=0)
        if late and self.busy:
            return {}
        answers = {}
        for name, pending in list(self._asked.items()):
            if pending.answer in ready:
                del self._asked[name]
                if (answer := _collect_answer(pending)) is not None:
                    answers[name] = (pending, answer)
            elif time.time() - pending.at > ANSWER_S:
                del self._asked[name]
        return self._judge(answers)

    def _judge(
        self, found: Mapping[str, tuple[_PendingProbe, ProbeResult]]
    ) -> dict[str, NodeHealth]:
        if not found:
            return {}
        slow_parts = speed_issues(
            {**stored_results(), **{name: answer for name, (_, answer) in found.items()}}
        )
        judged = {}
        for name, (pending, answer) in found.items():
            if slow_parts[name] and pending.before is None:
                retry = replace(
                    pending, answer=exercise(pending.node), at=time.time(), before=answer
                )
                self._asked[name] = retry
                continue
            key, text = PREFIX + name.encode(), json.dumps(answer).encode()
            _internal_kv_put(key, text, namespace=NAMESPACE)
            troubles = (*own_issues(answer), *slow_parts[name])
            node = pending.node
            judged[name] = NodeHealth(node["NodeName"], node["NodeManagerAddress"], "", troubles)
        return judged


def exercise(node: Node) -> Any:
    """Start measuring a node's speed and reading its sensors; return a reference to the result."""
    gpus = probes.GPUS if node["Resources"].get("GPU") else None
    # From .../session_.../sockets/plasma_store:
    folder = str(Path(node["ObjectStoreSocketName"]).parents[2])
    return ask_node(node["NodeID"], probes.exercise, gpus, GPUS_S, {"Ray's files": folder})


def ask_node(node_id: str, probe: Callable[..., Any], *arguments: Any) -> Any:
    """Start a probe on a node, beside other work there; return a reference to the result."""
    cloudpickle.register_pickle_by_value(probes)  # our packages may not be installed there
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    remote: Any = ray.remote(probe)
    options = {"num_cpus": 0, "scheduling_strategy": strategy, "max_retries": 0}
    return remote.options(**options).remote(*arguments)


def stored_results() -> dict[str, ProbeResult]:
    """Return the stored results of live nodes, by Ray's id."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    names = [key.removeprefix(PREFIX) for key in _internal_kv_list(PREFIX, namespace=NAMESPACE)]
    texts = {name.decode(): _internal_kv_get(PREFIX + name, namespace=NAMESPACE) for name in names}
    return {name: json.loads(text) for name, text in texts.items() if text and name in alive}


def _collect_answer(asked: _PendingProbe) -> ProbeResult | None:
    """Return a probe's result; None: the node is gone or can't run it, as a trial will show."""
    try:
        reply = ray.get(asked.answer, timeout=0)
    except (ray.exceptions.RayError, ImportError):
        return None
    answer = {**reply, "clock": offset(asked.at, reply["time"], time.time())}
    return answer if asked.before is None else merge_probes(asked.before, answer)
