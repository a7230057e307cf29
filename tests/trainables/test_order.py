import pytest

from trainables.order import Order
from trainables.storage.checkpoint import Saved


def order(until=9, milestones=(3,), start=None):
    return Order(7, "t0001", {}, start, 1, until, milestones)


@pytest.mark.parametrize(
    ("before", "step", "reached"), [(0, 2, False), (2, 3, True), (2, 5, True), (3, 4, False)]
)
def test_a_milestone_is_reached_even_if_a_report_steps_over_it(before, step, reached):
    assert order().reaches_milestone(before, step) is reached


def test_only_the_last_report_needs_no_answer_unless_a_decision_is_due():
    assert order().needs_answer(8)
    assert not order().needs_answer(9)
    assert order(milestones=(9,)).needs_answer(9)
    assert order(until=None).needs_answer(10**6)


def test_a_file_is_told_from_those_of_other_checkpoints():
    started = order(start=Saved(2, "/s/t0001/1-2", "00", 10))
    assert started.is_start("/s/t0001/1-2/training.pt")
    assert not started.is_start("/s/t0001/1-21/training.pt")
    assert not order().is_start("/s/t0001/1-2/training.pt")
