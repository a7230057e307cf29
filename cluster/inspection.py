"""A look at the hardware of each node of a Ray cluster, before anything of ours first runs there.

What was found is kept by the cluster itself, for as long as it lives: nobody looks at a node twice,
and one that comes later is held against those that were there. Whoever asks goes on meanwhile.
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
from cluster.fitness import Fitness, better, faults, offset, slow

TOGETHER_S = 10.0  # within which nodes that are asked at once answer, to be judged at once
ANSWER_S = 60.0  # after which nobody waits for an answer: a trial will find out
GPUS_S = 45.0  # for a node to load torch and try its GPUs
NAMESPACE = b"hposvc"
PREFIX = b"inspection/"  # of the cluster's keys; the rest is Ray's id of a node

Node = Mapping[str, Any]  # as `ray.nodes` gives it
Found = Mapping[str, Any]  # what `probes.exercise` found, and `clock`


@dataclass(frozen=True)
class _Asked:
    """A node that is being looked at."""

    node: Node
    answer: Any
    at: float  # time.time
    before: Found | None = None  # what was found the first time; None: this is the first

    @property
    def patience_s(self) -> float:
        """How long others wait for it: a probe and a trial had better not share a GPU."""
        return ANSWER_S if self.node["Resources"].get("GPU") else TOGETHER_S


@dataclass
class Inspection:
    """Looks at nodes of the cluster that this process has joined."""

    _asked: dict[str, _Asked] = field(default_factory=dict)  # by Ray's id
    _known: set[str] = field(default_factory=set)  # ids of nodes that were, or are, looked at

    def look(self, nodes: Sequence[Node]) -> None:
        """Begin to look at those of these nodes at which nobody has looked."""
        if not {node["NodeID"] for node in nodes} - self._known:
            return
        self._known |= kept().keys()
        for node in nodes:
            name = node["NodeID"]
            if name not in self._known:
                self._known.add(name)
                self._asked[name] = _Asked(node, exercise(node), time.time())

    @property
    def busy(self) -> bool:
        """Whether nodes may soon be judged, so that it is worth while to wait for that."""
        now = time.time()
        return any(now - asked.at < asked.patience_s for asked in self._asked.values())

    def judged(self) -> dict[str, Fitness]:
        """The nodes of which one knows enough since this was last asked, by Ray's id.

        One that seems slow is looked at once more before it is judged.
        """
        answers = [asked.answer for asked in self._asked.values()]
        if not answers:
            return {}
        ready, late = ray.wait(answers, num_returns=len(answers), timeout=0)
        if late and self.busy:
            return {}
        found = {}
        for name, asked in list(self._asked.items()):
            if asked.answer in ready:
                del self._asked[name]
                if (there := _answered(asked)) is not None:
                    found[name] = (asked, there)
            elif time.time() - asked.at > ANSWER_S:
                del self._asked[name]
        return self._judge(found)

    def _judge(self, found: Mapping[str, tuple[_Asked, Found]]) -> dict[str, Fitness]:
        if not found:
            return {}
        behind = slow({**kept(), **{name: there for name, (_, there) in found.items()}})
        judged = {}
        for name, (asked, there) in found.items():
            if behind[name] and asked.before is None:
                again = replace(asked, answer=exercise(asked.node), at=time.time(), before=there)
                self._asked[name] = again
                continue
            _keep(name, there)
            troubles = (*faults(there), *behind[name])
            node = asked.node
            judged[name] = Fitness(node["NodeName"], node["NodeManagerAddress"], "", troubles)
        return judged


def exercise(node: Node) -> Any:
    """Ask a node how quick it is and what its instruments say; a reference to the answer."""
    gpus = probes.GPUS if node["Resources"].get("GPU") else None
    return ask_node(node["NodeID"], probes.exercise, gpus, GPUS_S, {"Ray's files": _folder(node)})


def ask_node(node_id: str, probe: Callable[..., Any], *arguments: Any) -> Any:
    """Run a probe on a node, beside whatever runs there; a reference to its answer."""
    cloudpickle.register_pickle_by_value(probes)  # our packages may not be there
    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
    remote: Any = ray.remote(probe)
    options = {"num_cpus": 0, "scheduling_strategy": where, "max_retries": 0}
    return remote.options(**options).remote(*arguments)


def kept() -> dict[str, Found]:
    """What was found of the cluster's nodes that live, by Ray's id."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    names = [key.removeprefix(PREFIX) for key in _internal_kv_list(PREFIX, namespace=NAMESPACE)]
    found = {name.decode(): _internal_kv_get(PREFIX + name, namespace=NAMESPACE) for name in names}
    return {name: json.loads(text) for name, text in found.items() if text and name in alive}


def _keep(name: str, found: Found) -> None:
    _internal_kv_put(PREFIX + name.encode(), json.dumps(found).encode(), namespace=NAMESPACE)


def _answered(asked: _Asked) -> Found | None:
    """What a node said; None: it is gone, or can't run a probe, which a trial will find out."""
    try:
        said = ray.get(asked.answer, timeout=0)
    except (ray.exceptions.RayError, ImportError):
        return None
    there = {**said, "clock": offset(asked.at, said["time"], time.time())}
    return there if asked.before is None else better(asked.before, there)


def _folder(node: Node) -> str:
    """Where a node has Ray's files, from .../session_.../sockets/plasma_store."""
    return str(Path(node["ObjectStoreSocketName"]).parents[2])
