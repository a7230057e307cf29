"""Hardware inspection of each node of a Ray cluster, before our first use of the node.

Results are stored in the cluster itself for as long as it lives: no node is inspected twice, and
nodes that join later are compared with earlier ones. Inspections run in the background.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray import cloudpickle
from ray.experimental.internal_kv import (
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)  # no public name exists (Ray 2.60)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster import probes
from cluster.node_health import Node, NodeHealth, Probe, judge, speed_issues
from cluster.probes import Digests

ANSWER_S = 120.0  # as for shared storage; after that a trial will show what is wrong
NAMESPACE = b"hposvc"
PREFIX = b"probe/"  # of keys in the cluster's store; Ray's id of a node follows


class PendingProbe(NamedTuple):
    """A probe running on a node."""

    node: Node
    answer: Any
    at: float  # time.time
    again: bool = False  # whether it is the second, since the node seemed slow


@dataclass
class Inspection:
    """Inspection of nodes of the cluster that this process has joined."""

    _pending: dict[str, PendingProbe] = field(default_factory=dict)  # by Ray's id of the node
    _known: set[str] = field(default_factory=set)  # ids of nodes inspected, or being inspected

    def look(self, nodes: Sequence[Node]) -> None:
        """Start inspecting those of the nodes that have not been inspected."""
        if {node["NodeID"] for node in nodes} <= self._known:
            return
        self._known |= stored_results().keys()
        new = {node["NodeID"]: node for node in nodes if node["NodeID"] not in self._known}
        self._pending |= {name: start_probe(node) for name, node in new.items()}
        self._known |= new.keys()

    @property
    def busy(self) -> bool:
        """Whether some answer may arrive soon, so that waiting for it is worthwhile.

        A probe and a trial should not share a GPU, and no trial should begin on an unfit node.
        """
        now = time.time()
        return any(now - pending.at < ANSWER_S for pending in self._pending.values())

    def judged(self) -> dict[str, NodeHealth]:
        """Return the nodes judged since the last call, by Ray's id.

        A node that seems slow is probed once more before it is judged. One that is gone, or can't
        run the probe, is left out: a trial will show what is wrong.
        """
        references = [pending.answer for pending in self._pending.values()]
        if not references:
            return {}
        _, late = ray.wait(references, num_returns=len(references), timeout=0)
        if late and self.busy:
            return {}
        ended, self._pending = self._pending, {}
        answers = {name: collect(pending) for name, pending in ended.items()}
        slow_parts = speed_issues({**stored_results(), **answers})
        judged = {}
        for name, answer in answers.items():
            if isinstance(answer, str):
                continue
            node = ended[name].node
            if slow_parts[name] and not ended[name].again:
                self._pending[name] = start_probe(node)._replace(again=True)
                continue
            key, text = PREFIX + name.encode(), json.dumps(answer).encode()
            _internal_kv_put(key, text, namespace=NAMESPACE)
            judged[name] = judge(node, answer, slow_parts[name])
        return judged


def examine_all(nodes: Sequence[Node], storage: str) -> list[NodeHealth]:
    """Probe nodes in parallel, also for what sweeps need of them, and judge them by each other.

    Args:
        storage: the folder for checkpoints.
    """
    here = probes.digest(probes.PACKAGES)
    probed = [start_probe(node, here, storage=storage) for node in nodes]
    # Each answer is collected at once, since its time bounds the node's clock.
    with ThreadPoolExecutor(len(probed)) as pool:
        collected = pool.map(partial(collect, timeout_s=ANSWER_S), probed)
        answers = {node["NodeID"]: answer for node, answer in zip(nodes, collected, strict=True)}
    slow_parts = speed_issues(answers)
    return [judge(node, answers[node["NodeID"]], slow_parts[node["NodeID"]]) for node in nodes]


def start_probe(node: Node, here: Digests | None = None, **folders: str) -> PendingProbe:
    """Start probing a node, beside other work there.

    Args:
        here: as for `probes.examine`.
        folders: to report the free disk space of, besides that of Ray's files.
    """
    cloudpickle.register_pickle_by_value(probes)  # our packages may not be installed there
    strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    remote: Any = ray.remote(probes.examine)
    options = {"num_cpus": 0, "scheduling_strategy": strategy, "max_retries": 0}
    # From .../session_.../sockets/plasma_store:
    own_folder = {"Ray's files": str(Path(node["ObjectStoreSocketName"]).parents[2])}
    gpus = int(node["Resources"].get("GPU", 0))
    answer = remote.options(**options).remote(gpus, folders | own_folder, here)
    return PendingProbe(node, answer, time.time())


def stored_results() -> dict[str, Probe]:
    """Return the stored results of live nodes, by Ray's id."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    names = [key.removeprefix(PREFIX) for key in _internal_kv_list(PREFIX, namespace=NAMESPACE)]
    texts = {name.decode(): _internal_kv_get(PREFIX + name, namespace=NAMESPACE) for name in names}
    return {name: json.loads(text) for name, text in texts.items() if text and name in alive}


def collect(pending: PendingProbe, timeout_s: float = 0.0) -> Probe | str:
    """Return a probe's result; a text: the reason why there is none.

    Its `clock` is the smallest difference from ours that explains the times.
    """
    try:
        reply = ray.get(pending.answer, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except (ray.exceptions.RayError, ImportError) as error:
        return str(error).strip().splitlines()[-1]
    most, least = reply["began"] - pending.at, reply["time"] - time.time()
    return {**reply, "clock": max(least, min(most, 0.0))}
