"""Schedulers whose trials run to the end. If these fail, a longer sweep leaves trials behind."""

import pytest

from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.scheduler import (
    Advance,
    Left,
    Ordered,
    Paused,
    Report,
)


@pytest.fixture
def waiting():
    """Return a scheduler of trials of 9 steps, one of which was paused at step 4."""
    scheduler = Resumable(9, (1, 3, 5, 7))
    for fact in (Ordered("t1", 4), Report("t1", 3, 0.5), Report("t1", 4, 0.4), Paused("t1")):
        scheduler.apply(fact)
    return scheduler


def test_an_idle_trial_goes_on_to_the_end_with_the_milestones_that_are_left(waiting):
    assert waiting.resume_next() == Advance("t1", 9, (5, 7))
    waiting.apply(Ordered("t1", 9))
    assert waiting.resume_next() is None


def test_a_trial_that_has_left_does_not_go_on(waiting):
    waiting.apply(Left("t1"))
    assert waiting.resume_next() is None
    assert waiting.max_concurrency() == 0


def test_a_trial_that_paused_at_the_end_before_goes_on_to_the_new_one():
    longer = Resumable(27, (1, 3, 9))
    for fact in (Ordered("t1", 9), Report("t1", 9, 0.1), Paused("t1")):
        longer.apply(fact)
    assert longer.resume_next() == Advance("t1", 27, ())


def test_slots_are_needed_for_what_runs_and_what_goes_on(waiting):
    waiting.apply(Ordered("t2", 9))
    assert waiting.max_concurrency() == 2


def test_a_trial_that_is_not_good_enough_waits():
    class Strict(Resumable):
        def goes_on(self, trial, step):
            return trial != "t1"

    strict = Strict(9, (), unfinished={"t1": 4, "t2": 3})
    assert strict.resume_next() == Advance("t2", 9, ())
