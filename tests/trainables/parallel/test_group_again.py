"""A process group that came to nothing."""

from datetime import timedelta

import pytest
import torch.distributed as dist

from trainables.parallel import group


def test_after_a_group_that_came_to_nothing_the_next_has_the_name_that_its_peers_expect(
    monkeypatch,
):
    """Else the slot's next order hangs until failure.stall: each rank waits under another name."""
    monkeypatch.setattr(group, "PATIENCE", timedelta(seconds=0.2))
    meeting = group.Meeting.open("127.0.0.1", 2, gpu=False)
    for order in (1, 2):
        with (
            pytest.raises(dist.DistError, match=rf"/group-{order}/0//cpu"),
            meeting.group(order),
        ):
            pytest.fail("there is no other rank")
