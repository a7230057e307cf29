"""Messages: what they say, and that no name in them is more than text."""

import pytest
from simulated_sweeps import fold, make_several, make_spec

from hposvc.events import Alerted, Attached, Finished, Suspended
from hposvc.journal.journal import SweepRow
from hposvc.spec.notify import Channel, Moment
from hposvc.tracking.messages import Message, asks_for, compose, moment_of, plain

HOSTILE = "x\r\nBcc: all@example.org\n\n<!channel> @here &amp; <https://evil|click> \x1b[2J\u202e"


def message(text=HOSTILE, **fields):
    said = plain(text)
    return Message("s.1.2.0", "done", "s", said, said, 0.0, said, "COMPLETED", **fields)


def test_a_text_has_one_line_without_control_characters_and_an_end():
    assert plain("a\r\n\tb\x00c\u2028d") == "a b c d"
    assert plain("x" * 600) == "x" * 499 + "…"


def test_a_service_gets_no_mention_no_markup_and_no_other_header():
    text = f"{message().title}\n{message().details}"
    assert not {"<", ">", "\r"} & set(text)
    assert "@here" not in text
    assert "\n" not in message().title


def test_the_end_of_a_sweep_names_its_state_its_best_and_its_trials():
    spec = make_spec()
    row = SweepRow("digits-1", "digits", "vision", 1000.0, {}, {})
    event = Finished(60.0, "COMPLETED", "trials")
    state = fold(spec, [Attached(0.0, "h:1"), event])
    said = compose(row, state, 7, event)
    assert (said.what, said.id, said.time) == ("done", "digits-1.1000.7", 1060.0)
    assert said.text == "COMPLETED: trials; 0 trials"
    assert said.json()["version"] == 1


@pytest.mark.parametrize(
    ("event", "moment"),
    [
        (Finished(0.0, "COMPLETED", ""), Moment("done")),
        (Finished(0.0, "STOPPED", "user"), Moment("done")),
        (Finished(0.0, "FAILED", "x"), Moment("failed")),
        (Suspended(0.0, "user"), None),
        (Suspended(0.0, "disk full"), Moment("stalled")),
        (Alerted(0.0, "budget", "", 0.5), Moment("budget", 0.5)),
    ],
)
def test_the_moment_of_an_event(event, moment):
    assert moment_of(event) == moment


def test_a_channel_is_told_of_its_own_thresholds():
    channel = Channel(webhook="https://x.example/", on=("done", {"budget": "80%", "stalled": "5m"}))
    assert asks_for(channel, Moment("done"))
    assert asks_for(channel, Moment("budget", 0.8))
    assert not asks_for(channel, Moment("budget", 0.5))
    assert not asks_for(channel, Moment("failed"))
    assert asks_for(channel, Moment("stalled"))  # a full disk


def test_with_several_metrics_the_front_is_counted():
    spec = make_several()
    event = Finished(60.0, "FAILED", "no trial has a value")
    said = compose(SweepRow("s", "s", "p", 0.0, {}, {}), fold(spec, [event]), 1, event)
    assert (said.metric, said.value) == (None, None)
