"""A coordinator and a real process that trains several trials at once, without Ray.

If these fail, trials of a sweep with training.trials_per_process get others' results, or take
others along.
"""

import signal
from pathlib import Path

import pytest
import two_ranks
from busy_slot import BusySlot, losses
from small import EXACT, Small

from trainables import Worker
from trainables.link import Report
from trainables.sharing.lane_coordinators import LaneCoordinators
from trainables.storage.checkpoint import verify
from trainables.training import Training

SEED = 5
LONG = 3000  # epochs: nobody waits for the last


class BatchSlot(BusySlot):
    """The process of a slot that trains several orders at once."""

    @staticmethod
    def lead(place, say):
        lanes = place.training.trials_per_process
        return LaneCoordinators(lanes, place.world_size, say, place.stall_s)


def started(folder, **changes):
    """Start a slot of four trials at once."""
    training = Training(precision="64-true", trials_per_process=4)
    given = {"trainable": "small:Small", "training": training, "metrics": ("val/loss",)}
    given |= {"world_size": 1, "seed": SEED}
    return two_ranks.started(folder, kind=BatchSlot, **given, **changes)


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """A slot for many tests."""
    with started(tmp_path_factory.mktemp("slot")) as slot:
        yield slot


def alone(order, params):
    """Return the validation losses of the same trial in a process of its own."""
    worker = Worker.alone(until=3, seed=SEED * 1_000_003 + order, training=EXACT)
    Small(**params).train(worker)
    return [report.metrics["val/loss"] for report in worker.reports]


@pytest.mark.long
def test_more_orders_than_train_at_once_come_to_what_they_come_to_alone(slot):
    chosen = [{"lr": 0.01 * k, "dropout": 0.1 * k} for k in range(1, 7)]
    orders = [slot.start(params) for params in chosen[:4]]
    results = slot.finish(*orders, later=chosen[4:])
    for order, ((reports, end), params) in enumerate(zip(results, chosen, strict=True), orders[0]):
        assert end.kind == "ended"
        assert end.clean
        assert not end.leaks
        assert losses(reports) == pytest.approx(alone(order, params), rel=1e-12)
        assert reports[-1].checkpoint is not None


def test_a_trial_is_stopped_at_its_milestone_and_goes_on_in_another_order(slot):
    first = slot.start({"lr": 0.02}, milestones=(1,))
    other = slot.start({"lr": 0.03}, until=3)
    (stopped, end), (other_reports, _) = slot.finish(first, other, stops=[(first, 1)])
    assert [report.step for report in stopped] == [1]
    assert end.kind == "ended"
    assert [report.step for report in other_reports] == [1, 2, 3]
    again = slot.start({"lr": 0.02}, start=stopped[0].checkpoint)
    [(rest, end)] = slot.finish(again)
    assert end.kind == "ended"
    assert [report.step for report in rest] == [2, 3]


def test_what_cannot_train_with_the_others_is_told_and_the_others_go_on(slot):
    orders = [slot.start({"lr": 0.01}), slot.start({"width": 9}), slot.start({"lr": "fast"})]
    (good, well), (_, shape), (_, broken) = slot.finish(*orders)
    assert well.kind == "ended"
    assert len(good) == 3
    assert shape.kind == broken.kind == "user"
    assert "fields that differ are width" in shape.message
    assert "TypeError" in broken.message or "ValueError" in broken.message
    [(later, end)] = slot.finish(slot.start({"width": 9}))  # alone it may
    assert end.kind == "ended"
    assert len(later) == 3


def test_an_interrupt_that_the_user_s_code_raises_ends_its_trial_alone(slot):
    """The error would end the process, and with it the other trials."""
    (_, ended), (good, well) = slot.finish(slot.start({"kind": "^C"}), slot.start({"lr": 0.01}))
    assert (ended.kind, ended.clean) == ("user", True)
    assert "KeyboardInterrupt" in ended.message
    assert (well.kind, len(good)) == ("ended", 3)


def test_a_checkpoint_that_was_changed_is_told_as_that(slot):
    [(reports, _)] = slot.finish(slot.start({"lr": 0.01}))
    saved = reports[0].checkpoint
    (Path(saved.path) / "training.pt").write_bytes(b"torn")
    good, bad = slot.start({"lr": 0.01}), slot.start({"lr": 0.01}, start=saved)
    (_, well), (_, end) = slot.finish(good, bad)
    assert well.kind == "ended"
    assert end.kind == "damaged"


@pytest.mark.full
@pytest.mark.parametrize("told", ["SIGTERM", "leave"])
def test_trials_whose_process_is_to_end_keep_the_epoch_that_they_are_at(tmp_path, told):
    """Peers: a spot node takes all trials of a process back to their last checkpoints."""
    params = [{"lr": 0.01 * k} for k in (1, 2, 3)]
    with started(tmp_path, every=LONG, total=LONG) as slot:
        orders = [slot.start(values, until=LONG) for values in params]
        last = {}
        while last.keys() != set(orders):
            message = slot.next_message()
            if isinstance(message, Report):
                last[message.order] = message.step
        if told == "SIGTERM":
            slot.ranks[0].send_signal(signal.SIGTERM)
        else:
            slot.leader.leave("Ray drains the node")
        results = slot.finish(*orders)
        why = "Ray drains the node" if told == "leave" else "the rank was told to end (SIGTERM)"
        assert {*slot.leaving} == {why.replace("the rank", "rank 0")}
        for (reports, end), order in zip(results, orders, strict=True):
            assert (end.kind, end.clean) == ("preempt", True)
            assert end.message in (why, why.replace("the rank", "rank 0"))
            last |= {report.order: report.step for report in reports}
            assert slot.kept[order].step == last[order] < LONG
            verify(slot.kept[order])
        leaks = ["it was told to end (SIGTERM)"] if told == "SIGTERM" else []
        assert [leak for _, end in results for leak in end.leaks] == leaks
    (tmp_path / "next").mkdir()
    steps = slot.kept[1].step + 3
    with started(tmp_path / "next", every=LONG, total=LONG) as other:
        order = other.start(params[0], start=slot.kept[1], until=steps)
        [(reports, end)] = other.finish(order)
    assert end.kind == "ended"
    worker = Worker.alone(until=LONG, seed=SEED * 1_000_003 + 1, training=EXACT)
    worker.until = steps
    Small(**params[0]).train(worker)
    uninterrupted = [report.metrics["val/loss"] for report in worker.reports]
    assert losses(reports) == pytest.approx(uninterrupted[-3:], rel=1e-12)


@pytest.mark.full
def test_an_order_that_comes_while_the_process_is_to_end_is_given_back(tmp_path):
    """The order arrives too late, and must not go on for long."""
    with started(tmp_path, every=LONG, total=LONG) as slot:
        first = slot.start({"lr": 0.01}, until=LONG)
        slot.next_message()
        slot.leader.leave("Ray drains the node")
        late = slot.start({"lr": 0.02}, until=LONG)
        [_, (reports, end)] = slot.finish(first, late)
    assert (len(reports) <= 1, end.kind) == (True, "preempt")
