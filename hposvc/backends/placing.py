"""What a slot takes from a cluster, and how many of them fit.

Ray leaves a placement group that can never be placed pending without a word; so it is worked out
here, from what the nodes have in all.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hposvc.backends.backend import OutOfReach
from hposvc.spec import Resources

Bundle = dict[str, float]
NODE = "ray.io/node-id"  # the label by which Ray tells nodes apart
STRATEGIES = {"pack": "PACK", "strict_pack": "STRICT_PACK", "spread": "SPREAD"}


def bundle(resources: Resources) -> Bundle:
    """What one rank reserves, in Ray's units (memory in bytes)."""
    wanted: Bundle = {"CPU": resources.cpus_per_worker}
    if resources.gpus_per_worker:
        wanted["GPU"] = resources.gpus_per_worker
    if resources.memory_per_worker:
        wanted["memory"] = float(resources.memory_per_worker)
    if resources.accelerator:
        wanted[f"accelerator_type:{resources.accelerator}"] = 0.001
    return {**wanted, **resources.custom}


def options(resources: Resources) -> dict[str, Any]:
    """The same, as Ray wants it told for the rank's actor."""
    wanted = bundle(resources)
    given: dict[str, Any] = {"num_cpus": wanted.pop("CPU"), "num_gpus": wanted.pop("GPU", 0)}
    if "memory" in wanted:
        given["memory"] = wanted.pop("memory")
    return {**given, "resources": wanted}


def selectors(resources: Resources) -> list[dict[str, str]]:
    """What each rank's node must be labelled with, in Ray's terms; empty: nothing is asked for."""
    return [dict(resources.labels)] * resources.ranks if resources.labels else []


def without(resources: Resources, nodes: Collection[str]) -> Resources:
    """The same, but on none of these nodes; a spec that names its nodes itself has its will.

    Args:
        nodes: Ray's ids of them.
    """
    if not nodes or NODE in resources.labels:
        return resources
    others = f"!in({','.join(sorted(nodes))})"
    return replace(resources, labels={**resources.labels, NODE: others})


def hosts(
    resources: Resources, nodes: Sequence[Mapping[str, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """The nodes that could take a rank if they were empty.

    Args:
        nodes: as `ray.nodes` gives them.
    """
    wanted = bundle(resources)
    return [
        node for node in nodes if _carries(node, resources) and _ranks_on(node["Resources"], wanted)
    ]


def labelled(
    resources: Resources, nodes: Sequence[Mapping[str, Mapping[str, str]]]
) -> list[Mapping[str, float]]:
    """What those nodes have that carry the labels asked for.

    Args:
        nodes: `Resources` and `Labels` of each, as `ray.nodes` gives them.

    Raises:
        OutOfReach: no node carries them.
    """
    suited = [
        cast(Mapping[str, float], node["Resources"]) for node in nodes if _carries(node, resources)
    ]
    if resources.labels and not suited:
        wanted = ", ".join(f"{name}: {text}" for name, text in resources.labels.items())
        found = {f"{name}: {text}" for node in nodes for name, text in node["Labels"].items()}
        there = ", ".join(sorted(one for one in found if "ray.io/" not in one)) or "none"
        raise OutOfReach(
            f"resources.labels: no node has {wanted}; the cluster's nodes have {there}"
        )
    return suited


def _carries(node: Mapping[str, Mapping[str, Any]], resources: Resources) -> bool:
    wanted = resources.labels.items()
    return all(_selects(text, node["Labels"].get(name)) for name, text in wanted)


def _selects(selector: str, label: str | None) -> bool:
    """Whether one of Ray's selectors (a, !a, in(a, b), !in(a, b)) takes a label."""
    wanted = selector.removeprefix("!").removeprefix("in(").removesuffix(")").split(",")
    return (label in [text.strip() for text in wanted]) != selector.startswith("!")


def count(resources: Resources, nodes: Sequence[Mapping[str, float]]) -> int:
    """How many slots the nodes could hold at once if they were empty; 0: not a single one."""
    wanted = bundle(resources)
    per_node = [_ranks_on(node, wanted) for node in nodes]
    if resources.placement == "strict_pack":
        return sum(ranks // resources.ranks for ranks in per_node)
    return sum(per_node) // resources.ranks


def count_fitting(resources: Resources, nodes: Sequence[Mapping[str, float]]) -> int:
    """The same.

    Raises:
        OutOfReach: not a single one; the message says what there is.
    """
    fitting, wanted = count(resources, nodes), bundle(resources)
    if fitting == 0:
        where = " on one node" if resources.placement == "strict_pack" else ""
        found = "; ".join(_shown(node, wanted) for node in nodes) or "no node"
        raise OutOfReach(
            f"resources: a trial needs {resources.ranks} x {_shown(wanted)}{where}, and the "
            f"cluster has {found}; lower resources.workers or what each takes, or add nodes"
        )
    return fitting


def ranks_in(resources: Resources, there: Mapping[str, float]) -> int:
    """How many ranks these amounts are enough for."""
    return _ranks_on(there, bundle(resources))


def _ranks_on(node: Mapping[str, float], wanted: Bundle) -> int:
    # Ray counts resources in 1/10,000; so does the comparison.
    return min(
        int((node.get(name, 0.0) + 1e-4) / amount) for name, amount in wanted.items() if amount
    )


def _shown(amounts: Mapping[str, float], only: Bundle | None = None) -> str:
    names = amounts if only is None else only
    return "{" + ", ".join(f"{name}: {amounts.get(name, 0.0):g}" for name in names) + "}"
