"""A coordinator of several orders, over real sockets. If these fail, orders are mixed up."""

import pytest
from coordinated import Slot

from trainables.link import CheckpointSaved, Report
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.wire import Beat, Leave, PreemptionNotice, PreemptionStarted
from trainables.storage.checkpoint import Saved
from trainables.vmapped.coordinator import BatchCoordinator
from trainables.vmapped.wire import ALL_ORDERS, OrderAnswer


def order(number, until=9, milestones=()):
    return Assignment(Order(number, f"t{number}", {"lr": 0.1}, None, 1, until, milestones))


def report(number, step):
    return Report(number, step, {"loss": float(number)})


def test_several_orders_are_out_at_once_and_each_hears_its_own_answers(switchboard):
    slot = Slot(switchboard, 1, BatchCoordinator)
    with slot.ranks() as (rank,):
        for number in (1, 2):
            slot.leader.carry_out(order(number, milestones=(2,)))
            assert rank.recv() == order(number, milestones=(2,))
        for number, step in ((2, 1), (1, 2), (2, 2)):
            rank.send(report(number, step))
            assert slot.next() == report(number, step)
        assert not rank.poll(0.1)  # both wait for a decision, which the first report did not
        slot.leader.decide(2, "stop")
        assert rank.recv() == OrderAnswer(2, False)
        slot.leader.decide(1, "continue")
        assert rank.recv() == OrderAnswer(1, True)


def test_an_order_ends_while_another_goes_on_and_a_third_comes(switchboard):
    slot = Slot(switchboard, 1, BatchCoordinator)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order(1))
        slot.leader.carry_out(order(2))
        rank.send(Outcome(1, "diverged", "too far", ("a thread",)))
        assert slot.next() == Outcome(1, "diverged", "too far", ("a thread",))
        slot.leader.carry_out(order(3))
        assert [rank.recv().order.id for _ in range(3)] == [1, 2, 3]
        rank.send(report(1, 4))  # of an order that is over
        saved = Saved(3, "/there", "0", 1)
        rank.send(CheckpointSaved(2, saved))
        assert slot.next() == CheckpointSaved(2, saved)
        rank.send(report(3, 9))
        assert slot.next() == report(3, 9)
        rank.send(Outcome(3, "ended"))
        assert slot.next() == Outcome(3, "ended")


def test_a_stop_is_told_at_once(switchboard):
    slot = Slot(switchboard, 1, BatchCoordinator)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order(1))
        rank.recv()
        slot.leader.decide(1, "stop")
        assert rank.recv() == OrderAnswer(1, False)
        slot.leader.decide(7, "stop")  # an order that it never had


@pytest.mark.full
def test_a_process_that_shows_nothing_stalls_with_all_its_orders(switchboard):
    slot = Slot(switchboard, 1, BatchCoordinator, 1.0)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order(1))
        slot.leader.carry_out(order(2))
        rank.send(Beat(ALL_ORDERS))
        ends = [slot.next(), slot.next()]
        assert [(end.order, end.clean) for end in ends] == [(1, False), (2, False)]
        assert {end.kind for end in ends} == {"stalled"}
        assert "the process of 2 trials for 1 s" in ends[0].message


@pytest.mark.parametrize("told", ["by its machine", "by whoever leads"])
def test_no_order_waits_for_a_decision_where_the_rank_is_to_end(switchboard, told):
    """Notice is short, and a rung may wait for others: the trial gets the decision elsewhere."""
    slot = Slot(switchboard, 1, BatchCoordinator)
    with slot.ranks() as (rank,):
        for number in (1, 2):
            slot.leader.carry_out(order(number, milestones=(1,)))
            rank.recv()
        rank.send(report(1, 1))
        assert isinstance(slot.next(), Report)
        if told == "by its machine":
            rank.send(PreemptionNotice(ALL_ORDERS))
            assert slot.next() == PreemptionStarted(
                ALL_ORDERS, "the rank was told to end (SIGTERM)"
            )
        else:
            slot.leader.leave("Ray drains node a")
            assert slot.next() == PreemptionStarted(ALL_ORDERS, "Ray drains node a")
        if told != "by its machine":
            assert rank.recv() == Leave("Ray drains node a")  # first: no epoch begins meanwhile
        assert rank.recv() == OrderAnswer(1, True)
        rank.send(report(2, 1))  # it came to its milestone meanwhile
        assert isinstance(slot.next(), Report)
        assert rank.recv() == OrderAnswer(2, True)
        slot.leader.leave("once more")
        rank.send(Outcome(1, "preempt", ""))
        assert slot.next().kind == "preempt"
        rank.send(Outcome(2, "collateral", "the store is out of reach"))
        assert slot.next().kind == "preempt"  # whatever it was, its place was taken
