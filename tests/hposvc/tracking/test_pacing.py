"""When the recorder looks, tells and tries again, by a clock that the tests set."""

from types import SimpleNamespace

import pytest

from hposvc.tracking.pacing import BACKOFF_S, GATHER_S, IDLE_S, POLL_S, Patience


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("hposvc.tracking.pacing.time.monotonic", lambda: clock.now)
    return clock


def test_points_are_told_together_and_what_presses_at_once(clock):
    patience = Patience(30.0)
    assert patience.read(pressing=False)  # nobody knows what the last recorder left
    patience.told()
    clock.now += GATHER_S - 0.1
    assert not patience.read(pressing=False)
    assert patience.read(pressing=True)
    clock.now += 0.1
    assert patience.read(pressing=False)


def test_it_looks_less_often_while_nothing_presses(clock):
    patience = Patience(30.0)
    patience.read(pressing=True)
    assert patience.pause_s == POLL_S
    for _ in range(10):
        patience.read(pressing=False)
    assert patience.pause_s == IDLE_S


def test_what_failed_is_tried_again_later_and_later(clock):
    patience = Patience(30.0)
    patience.told()
    pauses = []
    for _ in range(6):
        patience.failed()
        pauses.append(patience.pause_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, BACKOFF_S, BACKOFF_S]
    assert patience.read(pressing=False)  # it is not put off once more


def test_it_gives_up_when_nothing_worked_for_long_enough(clock):
    patience = Patience(30.0)
    patience.failed()
    clock.now += 29.9
    patience.failed()
    assert not patience.spent
    clock.now += 0.1
    assert patience.spent
    patience.told()
    assert not patience.spent
