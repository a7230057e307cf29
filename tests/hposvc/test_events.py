"""Events: reading returns exactly the written event, to the last bit."""

import math
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.events import (
    VERSION,
    Alerted,
    Attached,
    Cause,
    Checkpointed,
    Closed,
    Decided,
    Described,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Placed,
    Proposed,
    Reported,
    Requested,
    RetryDue,
    StorageExhausted,
    Suggested,
    Suspended,
    UnknownEvent,
    WarmStarted,
    error_line,
    from_json,
    to_json,
)
from searchers.searcher import Observation
from trainables.dataset import DataSet
from trainables.order import Order
from trainables.stop_signals import How
from trainables.storage.checkpoint import Saved

texts = st.text(max_size=20)
numbers = st.integers(0, 2**53)
floats = st.floats(allow_nan=True, allow_infinity=True)
times = st.floats(0, 4e9)
values = st.one_of(floats.filter(math.isfinite), st.integers(), texts, st.booleans(), st.none())
params = st.dictionaries(texts, values, max_size=4)
notes = st.dictionaries(texts, st.recursive(values, lambda each: st.lists(each, max_size=3)))
steps = st.lists(numbers, max_size=4).map(tuple)
saves = st.builds(Saved, step=numbers, path=texts, checksum=texts, size=numbers, within=numbers)
orders = st.builds(
    Order,
    id=numbers,
    trial=texts,
    params=params,
    start=st.none() | saves,
    first=numbers,
    until=numbers,
    milestones=steps,
    shrink=numbers,
)
losses = st.lists(floats, max_size=3).map(tuple)
observations = st.builds(
    Observation,
    id=texts,
    params=params,
    note=notes,
    loss=st.none() | floats,
    curve=st.lists(st.tuples(numbers, floats), max_size=3).map(tuple),
    state=st.sampled_from(["done", "failed"]),
    reason=texts,
    cost=st.none() | floats,
    losses=losses,
    excess=losses,
)
described = st.builds(
    DataSet,
    name=texts.filter(bool),
    context=st.sampled_from(["training", "validation"]),
    samples=numbers,
    digest=texts,
    source=texts,
)
EVENTS = {
    Attached: st.builds(Attached, times, texts),
    Proposed: st.builds(Proposed, times, texts, params, notes, numbers, steps, times),
    WarmStarted: st.builds(WarmStarted, times, st.lists(observations, max_size=3).map(tuple)),
    Ordered: st.builds(Ordered, times, orders),
    Placed: st.builds(Placed, times, numbers, texts, texts, texts),
    Checkpointed: st.builds(Checkpointed, times, numbers, texts, saves),
    Reported: st.builds(Reported, times, numbers, texts, numbers, st.dictionaries(texts, floats)),
    Described: st.builds(
        Described, times, numbers, texts, st.lists(described, max_size=2).map(tuple)
    ),
    Suggested: st.builds(Suggested, times, numbers, texts, texts, values, notes),
    Decided: st.builds(
        Decided,
        times,
        texts,
        st.none() | numbers,
        numbers,
        st.sampled_from(["continue", "stop", "kill"]),
        texts,
    ),
    Ended: st.builds(
        Ended,
        times,
        numbers,
        texts,
        st.sampled_from(get_args(How)),
        st.none() | st.lists(texts, max_size=3).map(tuple),
    ),
    Failed: st.builds(Failed, times, numbers, texts, st.sampled_from(get_args(Cause)), texts),
    Requested: st.builds(Requested, times, st.sampled_from(["stop", "kill"]), st.none() | texts),
    RetryDue: st.builds(RetryDue, times, texts),
    Alerted: st.builds(
        Alerted,
        times,
        st.sampled_from(["new_best", "budget"]),
        texts,
        st.floats(0, 1e9),
        st.none() | texts,
        st.none() | st.floats(allow_nan=False),
    ),
    StorageExhausted: st.builds(StorageExhausted, times, texts),
    Suspended: st.builds(Suspended, times, texts),
    Closed: st.builds(Closed, times, st.sampled_from(["trials", "space", "target"])),
    Finished: st.builds(
        Finished, times, st.sampled_from(["COMPLETED", "STOPPED", "FAILED"]), texts
    ),
}


def bits(value):
    """Return the value in a form in which NaN equals itself, and 0.0 does not equal -0.0."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(bits, value)]
    return vars_of(value) if hasattr(value, "__dataclass_fields__") else value


def vars_of(value):
    return {field.name: bits(getattr(value, field.name)) for field in fields(value)}


def test_every_kind_of_event_is_covered_here():
    assert set(EVENTS) == set(get_args(Event))


@settings(max_examples=300, deadline=None)
@given(st.one_of(*EVENTS.values()))
def test_an_event_is_read_as_it_was_written(event):
    read = from_json(event.kind, event.time, to_json(event))
    assert type(read) is type(event)
    assert bits(read) == bits(event)


def test_the_text_is_plain_ascii_without_the_time():
    text = to_json(Failed(1.5, 3, "t0001", "user", "übel\n\x00\ud800"))
    assert text.isascii()
    assert "\x00" not in text  # Postgres takes none
    assert "time" not in text


def test_an_event_of_a_later_version_is_named_with_the_remedy():
    with pytest.raises(UnknownEvent, match=r"'forked' is unknown here \(this hposvc reads"):
        from_json("forked", 0.0, "{}")
    later = to_json(Attached(0.0, "here:1", version=VERSION + 1))
    with pytest.raises(UnknownEvent, match=rf"version {VERSION + 1} is unknown here \(this hposvc"):
        from_json("attached", 0.0, later)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", ""),
        (
            "Traceback (most recent call last):\n  File x\nValueError: no luck\n\n",
            "ValueError: no luck",
        ),
        ("trainables.worker.ReportError: report: give a number", "report: give a number"),
        ("my.trainables.Error: no", "my.trainables.Error: no"),
        (
            "Traceback (most recent call last):\n  a\nE: one\nb\n[hposvc] exit status 3",
            "exit status 3",
        ),
        ("rank 1 of 2:\nTraceback (most recent call last):\n  a\nE: one", "rank 1 of 2: E: one"),
        (
            "Traceback (most recent call last):\n  a\nE: one\n\nDuring handling of the above "
            "exception, another exception occurred:\n\nTraceback (most recent call last):\n  b\n"
            "hydra.errors.InstantiationException: Error in call to target 'x':\nValueError('no')\n"
            "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
            "hydra.errors.InstantiationException: Error in call to target 'x': ValueError('no')",
        ),
        (
            "[rank0]: Traceback (most recent call last):\n[rank0]:   File x\n[rank1]: noise\n"
            "[rank0]: KeyError: 'width'\nwandb: View run at x",
            "KeyError: 'width'",
        ),
        (
            "╭──── Traceback (most recent call last) ────╮\n│ train.py:3 in train │\n"
            "╰─────────────────╯\nValueError: no luck",
            "ValueError: no luck",
        ),
        (
            "Traceback (most recent call last):\n  a\nE: one\nException ignored in: <f>\n"
            "Traceback (most recent call last):\n  b\nAttributeError: at exit",
            "E: one",
        ),
        (
            "  + Exception Group Traceback (most recent call last):\n  |   File x\n"
            "  | ExceptionGroup: several (1 sub-exception)\n  +-+---------------- 1 ---\n"
            "    | Traceback (most recent call last):\n    |   File y\n    | ValueError: in it\n"
            "    +------------------------------------",
            "ValueError: in it",
        ),
    ],
)
def test_the_line_of_a_failure_says_what_went_wrong_without_a_class_of_ours(message, line):
    assert error_line(message) == line
