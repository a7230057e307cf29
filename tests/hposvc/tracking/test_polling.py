"""The recorder's timing of reads, sends and retries, by a clock that the tests set."""

from types import SimpleNamespace

import pytest

from hposvc.tracking.polling import BACKOFF_S, GATHER_S, IDLE_S, POLL_S, Pacing


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("hposvc.tracking.polling.time.monotonic", lambda: clock.now)
    return clock


def test_points_are_told_together_and_what_presses_at_once(clock):
    pacing = Pacing(30.0)
    assert pacing.should_send(pressing=False)  # the last recorder may have left unsent entries
    pacing.record_sent()
    clock.now += GATHER_S - 0.1
    assert not pacing.should_send(pressing=False)
    assert pacing.should_send(pressing=True)
    clock.now += 0.1
    assert pacing.should_send(pressing=False)


def test_it_looks_less_often_while_nothing_presses(clock):
    pacing = Pacing(30.0)
    pacing.should_send(pressing=True)
    assert pacing.pause_s == POLL_S
    for _ in range(10):
        pacing.should_send(pressing=False)
    assert pacing.pause_s == IDLE_S


def test_what_failed_is_tried_again_later_and_later(clock):
    pacing = Pacing(30.0)
    pacing.record_sent()
    pauses = []
    for _ in range(6):
        pacing.record_failure()
        pauses.append(pacing.pause_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, BACKOFF_S, BACKOFF_S]
    assert pacing.should_send(pressing=False)  # a failed send is not delayed again


def test_it_gives_up_when_nothing_worked_for_long_enough(clock):
    pacing = Pacing(30.0)
    pacing.record_failure()
    clock.now += 29.9
    pacing.record_failure()
    assert not pacing.gave_up
    clock.now += 0.1
    assert pacing.gave_up
    pacing.record_sent()
    assert not pacing.gave_up
