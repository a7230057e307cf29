"""Notes about a sweep's disk space."""

from simulated_sweeps import at_desk

from hposvc.events import Checkpointed
from hposvc.views.disk_full import disk_notes
from trainables.storage.checkpoint import Saved


def test_a_quota_that_what_is_needed_exceeds_is_told_and_takes_nothing():
    desk = at_desk(trials={"max": 2, "parallel": 2}, checkpoints={"quota": 15})
    for order in (desk.start(0.1), desk.start(0.2)):
        saved = Saved(1, f"{order.trial}/{order.id}-1", "", 10)
        desk.happen(Checkpointed(desk.time, order.id, order.trial, saved))
        desk.report(order, 1, 0.5, save=False)
    assert desk.state.checkpoints.over
    assert desk.state.checkpoints.dropped == []
    assert "20 B of a quota of 15 B" in disk_notes("s", desk.state)[0]
