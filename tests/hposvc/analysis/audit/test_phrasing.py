"""The texts of an audit. If these fail, people read a wrong reason."""

import pytest

from hposvc.analysis.audit import phrasing
from hposvc.analysis.audit.comparison import Standing
from hposvc.events import Requested
from trainables.order import Order
from trainables.storage.checkpoint import Saved

SAVED = Saved(4, "t0001/4", "00", 10)
SECOND = Standing("t2", 3, (0.5,), 4, 1, (("t1", 3, (0.25,)), ("t2", 3, (0.5,))))


@pytest.mark.parametrize(
    ("value", "text"), [(None, "none"), (0.123456, "0.12346"), (7, "7"), (True, "True")]
)
def test_numbers_have_five_digits(value, text):
    assert phrasing.number(value) == text


def test_a_standing_names_the_trial_in_brackets_and_says_that_there_are_more():
    text = "rank 2 of 4 at step 3 so far: t1 0.25, [t2 0.5], …"
    assert phrasing.standing_text(SECOND) == text
    assert phrasing.standing_text(None) == ""


def test_a_rank_that_the_scheduler_gave_is_not_said_twice():
    assert phrasing.standing_after(SECOND, "rank 2 of 4 at the rung").startswith("so far: ")
    assert phrasing.standing_after(SECOND, "by the median") == phrasing.standing_text(SECOND)


def test_with_several_metrics_a_trial_is_dominated():
    standing = Standing("t2", 3, (0.5, 1.0), 4, 1, ())
    assert phrasing.standing_text(standing).startswith("dominated by 1 of 3 others at step 3")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "steps 5 to 9 from its checkpoint of step 4"),
        ({"parent": "t7"}, "steps 5 to 9 from t7's checkpoint of step 4"),
        ({"start": None, "until": None}, "steps 5 to its own end from nothing"),
        ({"shrink": 2}, "steps 5 to 9 from its checkpoint of step 4, micro-batches 1/4"),
    ],
)
def test_an_order_says_its_steps_and_its_start(changes, text):
    given = {"id": 1, "trial": "t1", "params": {}, "start": SAVED, "first": 5, "until": 9}
    order = Order(**{**given, **changes})
    on = f" on {order.workers} workers" if order.workers else ""
    assert phrasing.order_text(order).replace(on, "") == text


def test_changes_show_the_old_and_the_new_value():
    assert phrasing.changes_text({"lr": (0.01, 0.02)}) == "lr 0.01 → 0.02"


def test_a_failure_is_the_line_that_says_what_went_wrong_and_fits_a_table():
    message = "Traceback (most recent call last):\n  File x\nValueError: " + "x" * 500
    line = phrasing.failure(message)
    assert line.startswith("ValueError: x")
    assert len(line) == phrasing.MAX_MESSAGE
    assert phrasing.failure("") == "no message"


def test_a_request_names_who_asked_for_what():
    request = Requested(1.0, "extend", None, {"trials.max": "+5"}, by="ann")
    assert phrasing.request_text(request) == "ann: extend the sweep (trials.max=+5)"


def test_empty_parts_leave_no_semicolon():
    assert phrasing.joined("", "a", "", "b") == "a; b"
