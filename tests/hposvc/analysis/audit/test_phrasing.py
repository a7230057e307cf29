"""The texts of an audit. If these fail, people read a wrong reason."""

import pytest

from hposvc.analysis.audit import phrasing
from hposvc.analysis.audit.comparison import Standing
from trainables.order import Order
from trainables.storage.checkpoint import Saved

SAVED = Saved(4, "t0001/4", "00", 10)


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
