from hposvc import spec as specs
from hposvc.events import Attached, Requested, StorageExhausted
from hposvc.state.sweep import SweepState
from hposvc.views.waits import describe_waits


def test_a_sweep_waits_for_its_first_slot_and_then_for_nothing(story):
    assert describe_waits(story.state, story.time) == ["its first slot"]
    story.begin("t0001", 1)
    assert describe_waits(story.state, story.time) == []


def test_trials_that_lost_their_slot_wait_for_one_or_for_their_next_try(story):
    for number in (1, 2):
        story.begin(f"t{number:04}", number)
        story.fail(f"t{number:04}", number, "node lost", "infra")
    assert describe_waits(story.state, story.time) == ["a slot for t0001, t0002"]
    story.order("t0001", 3)
    story.fail("t0001", 3, "node lost", "infra")
    said = describe_waits(story.state, story.time + 1)
    assert said == ["a slot for t0002", "retry of t0001 in 1s"]


def test_a_full_disk_and_a_request_are_waited_for(story):
    story.begin("t0001", 1)
    story.happen(StorageExhausted(story.tick(), "2 GB free of 9 GB in /data"))
    story.happen(Requested(story.tick(), "stop"))
    assert describe_waits(story.state, story.time) == [
        "room on the disk: 2 GB free of 9 GB in /data",
        "running trials, then it ends",
    ]


def test_the_last_trials_of_a_rung_hold_up_the_paused_ones(story):
    spec = specs.dump(story.state.spec)
    state = SweepState(specs.load({**spec, "scheduler": "hyperband"}))
    state.apply(Attached(story.time, "host:1"))
    story.state = state
    story.begin("t0001", 1)
    story.begin("t0002", 2)
    state.trials.counts["PAUSED"], state.closed = 3, "trials"
    assert describe_waits(state, story.time) == ["the rest of a rung, for 3 paused trials"]
