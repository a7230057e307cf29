import pytest
import ray

from trainables.runtime.proctitle import getproctitle, task_span


def test_without_ray_a_rank_keeps_its_title():
    if ray.is_initialized():
        pytest.skip("another test of this process has joined a Ray")
    before = getproctitle()
    with task_span("s/slot-1/rank-0", "t0001/order-1"):
        assert getproctitle() == before
