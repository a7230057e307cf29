"""Folded states: a sweep of another version says so."""

import pytest
import recorded_home

from hposvc.events import Decided
from hposvc.server.folded import Folded, Unreadable


def test_a_sweep_that_cannot_be_read_says_so_each_time_and_is_read_again(sweeps):
    recorded_home.unreadable(sweeps, "later")
    folded, row = Folded(sweeps), sweeps.journal.find("later")
    for _ in range(2):
        with pytest.raises(Unreadable, match="teleported"), folded.open(row) as sweep:
            sweep.record()
    recorded_home.cut_off(sweeps, "broken")
    row = sweeps.journal.find("broken")
    folded.followers.look(row)
    sweeps.journal.append("broken", 5, [Decided(6.0, "t0099", None, 1, "stop", "user")])
    for _ in range(2):
        with pytest.raises(Unreadable, match="t0099"), folded.open(row) as sweep:
            sweep.record()
