"""A process group that could not be made."""

from datetime import timedelta

import pytest
import torch.distributed as dist

from trainables.parallel import group


def test_after_a_group_that_came_to_nothing_the_next_has_the_name_that_its_peers_expect(
    monkeypatch,
):
    """Otherwise the next order hangs until failure.stall, its ranks waiting under other names."""
    monkeypatch.setattr(group, "MAX_WAIT", timedelta(seconds=0.2))
    rank_store = group.RankStore.open("127.0.0.1", 2, gpu=False)
    for order in (1, 2):
        with (
            pytest.raises(dist.DistError, match=rf"/group-{order}/0//cpu"),
            rank_store.group(order),
        ):
            pytest.fail("there is no other rank")
