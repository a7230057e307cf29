"""Translations between the driver's events and what ranks receive and send."""

import pytest
from simulated_sweeps import make_spec

from hposvc.backends.backend import Setting, failure_event, to_assignment, to_events
from hposvc.events import Checkpointed, Ended, Order, Reported
from trainables.runtime.assignment import Outcome
from trainables.runtime.wire import CheckpointSaved, Finished
from trainables.runtime.wire import Reported as RankReport
from trainables.storage.checkpoint import Saved

SAVED = Saved(2, "/x/2", "00", 10)


def test_an_order_s_fields_all_reach_its_ranks():
    order = Order(7, "t0003", {"lr": 0.1}, SAVED, 3, 9, (4, 6), "t0001", "t0002", 2, 1, 4)
    task = to_assignment(order, {"A": "b"})
    assert (task.order, task.trial, task.params, task.start) == (7, "t0003", {"lr": 0.1}, SAVED)
    assert (task.first, task.until, task.milestones) == (3, 9, (4, 6))
    assert (task.environment, task.seed_of, task.shrink) == ({"A": "b"}, "t0002", 2)


def test_a_checkpoint_is_journaled_before_the_report_that_brings_it():
    report = RankReport(7, "t0003", 2, {"loss": 1.0}, SAVED)
    reported = Reported(5.0, 7, "t0003", 2, {"loss": 1.0})
    assert to_events(report, 5.0) == [Checkpointed(5.0, 7, "t0003", SAVED), reported]
    assert to_events(report._replace(saved=None), 5.0) == [reported]
    saved = CheckpointSaved(7, "t0003", SAVED)
    assert to_events(saved, 5.0) == [Checkpointed(5.0, 7, "t0003", SAVED)]
    assert to_events(Finished(7, "t0003", None, True, ()), 5.0) == [Ended(5.0, 7, "t0003")]


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
    failed = failure_event(1.0, 7, "t0003", Outcome(7, kind, "so it was"))
    assert (failed.cause, failed.damaged, failed.message) == (cause, damaged, "so it was")


def test_a_slot_is_configured_as_the_spec_says(tmp_path):
    spec = make_spec(seed=5, checkpoints={"every": 3}, failure={"stall": "90s"})
    config = Setting("s", spec, tmp_path, tmp_path, secrets={"KEY": "x"}).slot_config()
    assert (config.metrics, config.total, config.every) == (("loss",), 9, 3)
    assert (config.seed, config.stall_s, config.world_size, config.gpu) == (5, 90.0, 1, False)
    assert config.secrets == {"KEY": "x"}
