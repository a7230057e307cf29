"""The resources that a slot takes from a Ray cluster, and how many slots fit.

Ray leaves a placement group that can never be placed pending without a message, so the number of
slots that fit is computed here from the nodes' total resources.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hposvc.errors import OutOfReach
from hposvc.spec.sections import MARKET, Resources

Bundle = dict[str, float]
NOTHING: Mapping[str, object] = {}
NODE = "ray.io/node-id"  # the label by which Ray tells nodes apart
STRATEGIES = {"pack": "PACK", "strict_pack": "STRICT_PACK", "spread": "SPREAD"}


def bundle(resources: Resources) -> Bundle:
    """Return the resources that a rank reserves, in Ray's units (memory in bytes)."""
    amounts: Bundle = {"CPU": resources.cpus_per_worker}
    if resources.gpus_per_worker:
        amounts["GPU"] = resources.gpus_per_worker
    if resources.memory_per_worker:
        amounts["memory"] = float(resources.memory_per_worker)
    if resources.accelerator:
        amounts[f"accelerator_type:{resources.accelerator}"] = 0.001
    return {**amounts, **resources.custom}


def reserved(resources: Resources, datasets: bool) -> Bundle:
    """Return what a rank's placement group holds: it leaves CPUs to the tasks of Ray Data.

    Those take no part of a placement group (Ray 2.60). What is left free still counts as the slot's
    (`bundle`), so that no slot of any sweep takes it.

    Args:
        datasets: whether the rank reads datasets of Ray Data.
    """
    amounts = bundle(resources)
    return {**amounts, "CPU": resources.cpus_beside_data} if datasets else amounts


def describe_needs(resources: Resources) -> str:
    """Describe the resources of a slot for people: `2 CPU and 1 GPU`."""
    amounts = {name: amount * resources.ranks for name, amount in bundle(resources).items()}
    if "memory" in amounts:
        amounts["GiB of memory"] = amounts.pop("memory") / 2**30
    return " and ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount)


def rank_options(
    resources: Resources, runtime_env: Mapping[str, object] = NOTHING, datasets: bool = False
) -> dict[str, Any]:
    """Return the resources of a rank, and its runtime environment, as options of its Ray actor."""
    amounts = reserved(resources, datasets)
    actor_options: dict[str, Any] = {
        "num_cpus": amounts.pop("CPU"),
        "num_gpus": amounts.pop("GPU", 0),
    }
    if "memory" in amounts:
        actor_options["memory"] = amounts.pop("memory")
    if runtime_env:
        actor_options["runtime_env"] = dict(runtime_env)
    return {**actor_options, "resources": amounts}


def label_selectors(resources: Resources) -> list[dict[str, str]]:
    """Return Ray's label selectors for each rank's node; empty: the spec asks for no labels."""
    return [dict(resources.labels)] * resources.ranks if resources.labels else []


def excluding_nodes(resources: Resources, nodes: Collection[str]) -> Resources:
    """Return the resources restricted to other nodes than these, and to those of its market.

    Resources of a spec that selects nodes by id are not restricted to others.

    Args:
        nodes: Ray's ids of the nodes to avoid.
    """
    if resources.market is not None and MARKET not in resources.labels:
        labels = {**resources.labels, MARKET: resources.market.selector}
        resources = replace(resources, labels=labels)
    if not nodes or NODE in resources.labels:
        return resources
    others = f"!in({','.join(sorted(nodes))})"
    return replace(resources, labels={**resources.labels, NODE: others})


def suitable_nodes(
    resources: Resources, nodes: Sequence[Mapping[str, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """Return the nodes that could take a rank if they were empty.

    Args:
        nodes: as `ray.nodes` gives them.
    """
    return [
        node
        for node in nodes
        if _has_labels(node, resources) and count_ranks(resources, node["Resources"])
    ]


def labelled_resources(
    resources: Resources, nodes: Sequence[Mapping[str, Mapping[str, str]]]
) -> list[Mapping[str, float]]:
    """Return the resources of each node that has the labels asked for.

    Args:
        nodes: `Resources` and `Labels` of each node, as `ray.nodes` gives them.

    Raises:
        OutOfReach: no node has the labels.
    """
    suited = [
        cast(Mapping[str, float], node["Resources"])
        for node in nodes
        if _has_labels(node, resources)
    ]
    if resources.labels and not suited:
        required = ", ".join(f"{name}: {text}" for name, text in resources.labels.items())
        present = {f"{name}: {text}" for node in nodes for name, text in node["Labels"].items()}
        listed = ", ".join(sorted(label for label in present if "ray.io/" not in label)) or "none"
        raise OutOfReach(
            f"resources.labels: no node has {required}; the cluster's nodes have {listed}"
        )
    return suited


def _has_labels(node: Mapping[str, Mapping[str, Any]], resources: Resources) -> bool:
    """Whether a node's labels match Ray's label selectors (a, !a, in(a, b), !in(a, b))."""
    for name, selector in resources.labels.items():
        values = selector.removeprefix("!").removeprefix("in(").removesuffix(")").split(",")
        is_listed = node["Labels"].get(name) in [text.strip() for text in values]
        if is_listed == selector.startswith("!"):
            return False
    return True


def count_slots(resources: Resources, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many slots the nodes could hold at once if they were empty."""
    per_node = [count_ranks(resources, node) for node in nodes]
    if resources.placement == "strict_pack":
        return sum(ranks // resources.ranks for ranks in per_node)
    return sum(per_node) // resources.ranks


def require_fitting(resources: Resources, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many slots the nodes could hold at once if they were empty: at least 1.

    Raises:
        OutOfReach: no slot fits; the message lists what the nodes have.
    """
    fitting = count_slots(resources, nodes)
    if fitting == 0:
        needs = bundle(resources)
        scope = " on one node" if resources.placement == "strict_pack" else ""
        present = "; ".join(_format_amounts(node, needs) for node in nodes) or "no node"
        raise OutOfReach(
            f"resources: a trial needs {resources.ranks} x {_format_amounts(needs, needs)}{scope}, "
            f"and the cluster has {present}; lower resources.workers or what each takes, "
            "or add nodes"
        )
    return fitting


def count_ranks(resources: Resources, amounts: Mapping[str, float]) -> int:
    """Return how many ranks fit into these amounts of resources."""
    # Ray counts resources in 1/10,000; so does the comparison.
    return min(
        int((amounts.get(name, 0.0) + 1e-4) / amount)
        for name, amount in bundle(resources).items()
        if amount
    )


def _format_amounts(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{name}: {amounts.get(name, 0.0):g}" for name in names) + "}"


def bundles_by_node(nodes: Mapping[int, str]) -> list[int]:
    """Return the bundles grouped by node.

    Ray does not promise that bundles of a node are neighbours. Nodes are ordered by their first
    bundle; the bundles of a node keep their order, in which Ray assigns its GPUs.

    Args:
        nodes: the node of each bundle.
    """
    node_order = list(dict.fromkeys(nodes[bundle] for bundle in sorted(nodes)))
    return sorted(nodes, key=lambda bundle: (node_order.index(nodes[bundle]), bundle))
