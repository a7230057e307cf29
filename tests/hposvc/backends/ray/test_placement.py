"""Selection of nodes by labels and resources, and the order of ranks on them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.backends.ray.placement import (
    bundles_by_node,
    label_selectors,
    labelled_resources,
    suitable_nodes,
)
from hposvc.errors import OutOfReach
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.sections import Resources

NODES = [
    {"Resources": {"CPU": 1.0}, "Labels": {"ray.io/node-id": "x"}},
    {"Resources": {"CPU": 2.0}, "Labels": {"zone": "a"}},
    {"Resources": {"CPU": 3.0}, "Labels": {"zone": "b", "disk": "fast"}},
]


@pytest.mark.parametrize(
    ("labels", "cpus"),
    [
        ({}, [1, 2, 3]),
        ({"zone": "a"}, [2]),
        ({"zone": ["a", "b"]}, [2, 3]),
        ({"zone": "in(b, c)", "disk": "fast"}, [3]),
        ({"zone": "!a"}, [1, 3]),
        ({"zone": "!in(a, b)"}, [1]),
    ],
)
def test_labels_select_nodes_as_ray_does(labels, cpus):
    resources = fill(Resources, {"labels": labels, "workers": 2})
    assert [node["CPU"] for node in labelled_resources(resources, NODES)] == cpus
    assert len(label_selectors(resources)) == (2 if labels else 0)
    from ray._private.label_utils import validate_label_selector

    assert all(validate_label_selector(selector) is None for selector in label_selectors(resources))


def test_labels_that_no_node_carries_are_told_with_those_that_are_there():
    resources = fill(Resources, {"labels": {"zone": "c"}})
    with pytest.raises(OutOfReach, match=r"no node has zone: c; .* disk: fast, zone: a, zone: b"):
        labelled_resources(resources, NODES)


def test_a_node_counts_if_it_carries_the_labels_and_has_room_for_a_rank():
    resources = fill(Resources, {"cpus_per_worker": 2, "labels": {"ray.io/node-id": "!x"}})
    assert suitable_nodes(resources, NODES) == NODES[1:]
    assert suitable_nodes(fill(Resources, {"cpus_per_worker": 3, "workers": 9}), NODES) == NODES[2:]
    assert suitable_nodes(fill(Resources, {"gpus_per_worker": 1}), NODES) == []


def test_ranks_of_a_node_are_neighbours_and_keep_the_order_of_their_bundles():
    assert bundles_by_node({0: "b", 1: "a", 2: "b", 3: "a"}) == [0, 2, 1, 3]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=16))
def test_however_bundles_are_placed_each_node_s_are_together(nodes):
    """Neighbours exchange most: a tensor group over two machines would be many times slower."""
    placed = dict(enumerate(nodes))
    ranks = bundles_by_node(placed)
    assert sorted(ranks) == sorted(placed)
    changes = sum(placed[left] != placed[right] for left, right in pairwise(ranks))
    assert changes == len(set(nodes)) - 1
    assert bundles_by_node({rank: placed[bundle] for rank, bundle in enumerate(ranks)}) == sorted(
        placed
    )
