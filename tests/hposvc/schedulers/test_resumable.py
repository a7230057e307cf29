"""Schedulers whose trials run to the end. If these fail, a longer sweep leaves trials behind."""

import pytest

from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.scheduler import (
    Advance,
    Left,
    Opened,
    Ordered,
    Paused,
    Plan,
    Reopened,
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


def test_a_moved_end_is_where_trials_go_on_to(waiting):
    waiting.apply(Opened(Plan(1, 27)))
    assert waiting.resume_next().until == 27


def test_a_trial_that_has_left_does_not_go_on(waiting):
    waiting.apply(Left("t1"))
    assert waiting.resume_next() is None
    assert waiting.max_concurrency() == 0


def test_a_completed_trial_that_is_back_goes_on_and_a_failed_one_is_ordered_by_others(waiting):
    waiting.apply(Left("t1"))
    waiting.apply(Reopened("t2", Report("t2", 9, 0.1), failed=True))
    assert waiting.resume_next() is None
    waiting.apply(Opened(Plan(1, 27)))
    waiting.apply(Reopened("t1", Report("t1", 9, 0.1)))
    assert waiting.resume_next() == Advance("t1", 27, ())


def test_slots_are_needed_for_what_runs_and_what_goes_on(waiting):
    waiting.apply(Ordered("t2", 9))
    assert waiting.max_concurrency() == 2


def test_a_trial_that_is_not_good_enough_waits():
    class Strict(Resumable):
        def goes_on(self, trial, step):
            return trial != "t1"

    strict = Strict(9, (), unfinished={"t1": 4, "t2": 3})
    assert strict.resume_next() == Advance("t2", 9, ())
