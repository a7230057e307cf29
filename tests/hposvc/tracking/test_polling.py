"""When a recorder waits for its tracker, and when it gives up."""

from hposvc.tracking.polling import FEWEST, Pacing


def test_a_tracker_that_has_answered_is_waited_for():
    heard = []
    pacing = Pacing(3600.0, heard.append)
    pacing.record_sent()
    for _ in range(2 * FEWEST):
        pacing.record_failure()
    assert not pacing.gave_up
    assert heard == [True, False]
    pacing.record_sent()
    pacing.record_sent()
    assert heard == [True, False, True]


def test_one_that_has_never_answered_is_not():
    pacing = Pacing(3600.0)
    for _ in range(FEWEST):
        assert not pacing.gave_up
        pacing.record_failure()
    assert pacing.gave_up
