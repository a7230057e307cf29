import os

import pytest

from cluster.health import ask
from cluster.own_ray import Unreachable


def test_a_cluster_that_does_not_answer_is_given_up(tmp_path):
    with pytest.raises(Unreachable, match=r"\w"):
        ask("127.0.0.1:1", tmp_path, timeout_s=1.0)


@pytest.mark.full
@pytest.mark.ray
def test_a_cluster_that_is_started_runs_a_task(tmp_path):
    text, nodes = ask("local", tmp_path)
    assert text.startswith("1 node, ")
    assert nodes == []


@pytest.mark.ray
@pytest.mark.long
def test_each_node_is_probed_if_a_storage_is_given(tmp_path):
    _, [node] = ask("local", tmp_path, tmp_path)
    for note in ("1 CPU", "GiB for storage", "GiB for Ray's files", "torch ", "clock "):
        assert note in node.text.replace(f"{os.cpu_count()} CPU", "1 CPU")
    assert not node.unfit
