"""The events that messages of ranks become, and the configuration of a slot."""

from dataclasses import replace

import pytest

from hposvc.backends.backend import to_events
from hposvc.events import Checkpointed, Ended, Reported
from trainables.link import CheckpointSaved, Report
from trainables.runtime.assignment import Outcome
from trainables.storage.checkpoint import Saved

SAVED = Saved(2, "/x/2", "00", 10)


def test_a_checkpoint_is_journaled_before_the_report_that_brings_it():
    report = Report(7, 2, {"loss": 1.0}, SAVED)
    reported = Reported(5.0, 7, "t0003", 2, {"loss": 1.0})
    checkpointed = Checkpointed(5.0, 7, "t0003", SAVED)
    assert to_events(report, "t0003", 5.0) == [checkpointed, reported]
    assert to_events(replace(report, checkpoint=None), "t0003", 5.0) == [reported]
    assert to_events(CheckpointSaved(7, SAVED), "t0003", 5.0) == [checkpointed]
    ended = Outcome(7, "ended", how="returned")
    assert to_events(ended, "t0003", 5.0) == [Ended(5.0, 7, "t0003", "returned")]


@pytest.mark.parametrize(
    ("kind", "cause", "damaged"),
    [
        ("user", "user", False),
        ("oom", "oom", False),
        ("stalled", "stalled", False),
        ("preempt", "preempt", False),
        ("damaged", "infra", True),
        ("nobody knows", "infra", False),
    ],
)
def test_a_failure_has_the_cause_that_decides_about_its_retry(kind, cause, damaged):
    [failed] = to_events(Outcome(7, kind, "so it was"), "t0003", 1.0)
    assert (failed.cause, failed.damaged, failed.message) == (cause, damaged, "so it was")
