"""The order of ranks on nodes. If these fail, neighbouring ranks are on different nodes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hposvc.backends.ray.rank_group import bundles_by_node


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
