"""An event is a line for people."""

import json

import pytest

from hposvc.events import Ordered, Proposed, Reported, to_json
from hposvc.views.events import line
from trainables.order import Order


def of(event, seq=7):
    return {"seq": seq, "kind": event.kind, "time": event.time, "data": json.loads(to_json(event))}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Reported(1.0, 3, "t0001", 2, {"loss": 0.123456789}),
            "t0001   order=3 step=2 loss=0.12346",
        ),
        (Proposed(1.0, "t0002", {"lr": 0.01}, {}, 9), "t0002   lr=0.01 until=9"),
        (
            Ordered(1.0, Order(4, "t0003", {"lr": 0.5}, None, 1, 9)),
            "t0003   id=4 lr=0.5 first=1 until=9",
        ),
    ],
)
def test_a_line_has_number_kind_trial_and_what_happened(event, text):
    shown = line(of(event))
    assert shown.startswith("     7  ")
    assert shown.split()[2] == event.kind
    assert shown.endswith(text)


def test_a_line_is_one_line_of_some_length_without_control_characters():
    event = Reported(1.0, 3, "t0001", 2, {"a\x1b[31m\nb": 1.0, **{f"m{n}": 0.5 for n in range(99)}})
    shown = line(of(event))
    assert shown.isprintable()
    assert len(shown) < 220
