"""The contract of all engines. If an engine fails a test here, sweeps differ by their engine."""

import os
import signal
from pathlib import Path

import pytest
import ray
from engines import Bench, await_none, kinds, living, losses, pids, saved, steps

from hposvc.events import Checkpointed, Ended, Failed
from trainables.dataset import DataSet

ON_RAY = pytest.mark.ray
PROCESSES = ("local", 2)  # without Ray, a process for each rank
ALONE = [
    "simulate",
    "local",
    PROCESSES,
    "agents",
    pytest.param("ray", marks=ON_RAY),
    pytest.param("tune", marks=ON_RAY),
]
LATER = [ON_RAY, pytest.mark.full]  # tests that take seconds run on the pool only
REAL = [pytest.param(("ray", 1), marks=ON_RAY), pytest.param(("tune", 1), marks=LATER)]
PAIRS = [PROCESSES, pytest.param(("ray", 2), marks=ON_RAY), pytest.param(("tune", 2), marks=LATER)]
# A loaded machine may give a rank that starts no processor for seconds, which is no hang.
IMPATIENT = [
    pytest.param((name, 2, {"failure": {"stall": "12s"}}), marks=marks)
    for name, marks in (
        ("local", pytest.mark.long),
        ("ray", [ON_RAY, pytest.mark.long]),
        ("tune", LATER),
    )
]
every = pytest.mark.parametrize("bench", ALONE, indirect=True)
real = pytest.mark.parametrize("bench", REAL, indirect=True)
DYING = [pytest.param(PROCESSES, marks=pytest.mark.long), *REAL]  # each death costs a new start
dying = pytest.mark.parametrize("bench", DYING, indirect=True)
pairs = pytest.mark.parametrize("bench", PAIRS, indirect=True)


@pytest.fixture(scope="module")
def bench(request, tmp_path_factory):
    """Return an engine shared by its tests: slots are warm, and each test sees leftovers."""
    parameters = request.param if isinstance(request.param, tuple) else (request.param, 1)
    name, ranks, sections = (*parameters, {})[:3]
    on_ray = name in ("ray", "tune")
    home = request.getfixturevalue("home_with_ray") if on_ray else tmp_path_factory.mktemp("none")
    shared = Bench.of(name, ranks, tmp_path_factory.mktemp(name), home, **sections)
    yield shared
    shared.backend.close()


@pytest.mark.full
@every
def test_an_order_from_nothing_reports_each_step_behind_its_checkpoint(bench):
    events = bench.finish(bench.start())
    assert kinds(events) == ["checkpointed", "reported"] * 3 + ["ended"]
    assert steps(events) == [1, 2, 3]
    assert losses(events) == [0.1, 0.2, 0.3]


@every
def test_an_order_from_a_checkpoint_goes_on_where_it_ended(bench):
    first = bench.finish(bench.start(trial="t0100"))
    second = bench.finish(bench.start(trial="t0100", first=4, until=5, start=saved(first)))
    assert steps(second) == [4, 5]
    assert losses(second) == [0.4, 0.5]


@pytest.mark.parametrize("bench", ALONE[1:], indirect=True)
def test_a_checkpoint_that_no_report_brings_is_told_at_once_and_can_be_gone_on_from(bench):
    first = bench.finish(bench.start(trial="t0200", until=2, halves=True))
    assert kinds(first) == ["checkpointed", "checkpointed", "reported"] * 2 + ["ended"]
    places = [event.saved.position for event in first if isinstance(event, Checkpointed)]
    assert places == [(0, 1), (1, 0), (1, 1), (2, 0)]
    half = first[3].saved
    assert Path(half.path).name == f"{first[3].order}-1.1"
    second = bench.finish(bench.start(trial="t0200", first=2, start=half))
    assert losses(second) == [0.2, 0.3]


@pytest.mark.parametrize("bench", ALONE[1:], indirect=True)
def test_which_samples_a_trial_has_is_told_before_its_first_report(bench):
    first = bench.finish(bench.start(until=1, describes=True))
    assert kinds(first) == ["described", "checkpointed", "reported", "ended"]
    assert first[0].data == (DataSet("sums", "training", 5, "0a1b", "s3://bucket/sums"),)
    second = bench.finish(bench.start(first=2, until=2, start=saved(first), describes=True))
    assert kinds(second) == ["checkpointed", "reported", "ended"], "its first word stands"


@every
def test_exploit_starts_from_another_trial_s_checkpoint_with_other_values(bench):
    donor = bench.finish(bench.start(until=2))
    recipient = bench.finish(bench.start(first=7, until=8, start=saved(donor), lr=1.0))
    assert steps(recipient) == [7, 8], "the recipient keeps its own clock"
    assert losses(recipient) == ([7.0, 8.0] if bench.name == "simulate" else [1.2, 2.2])


@every
def test_a_stop_is_seen_at_a_report_and_ends_the_order(bench):
    order = bench.start(until=900, pause=0.01)
    bench.reach(order, 2)
    bench.backend.decide(order, "stop")
    events = bench.finish(order)
    assert isinstance(events[-1], Ended)
    assert 2 <= steps(events)[-1] < 900


@every
def test_a_milestone_waits_for_its_decision_and_nothing_else_does(bench):
    waits = bench.start(until=4, milestones=(2,))
    bench.reach(waits, 2)
    if bench.backend.slots() > 1:
        other = bench.start()
        assert steps(bench.finish(other)) == [1, 2, 3]
    for _ in range(6):
        bench.pump()
    assert steps(bench.seen[waits]) == [1, 2]
    bench.backend.decide(waits, "continue")
    events = bench.finish(waits)
    assert steps(events) == [1, 2, 3, 4]
    assert isinstance(events[-1], Ended)


@every
def test_a_milestone_that_is_told_to_stop_ends_there(bench):
    order = bench.start(until=4, milestones=(2,))
    bench.reach(order, 2)
    bench.backend.decide(order, "stop")
    assert kinds(bench.finish(order)) == ["checkpointed", "reported"] * 2 + ["ended"]


@every
def test_an_error_of_the_user_s_code_is_told_and_costs_no_process(bench):
    before = bench.finish(bench.start())
    failed = bench.finish(bench.start(at=2, do="raise"))
    after = bench.finish(bench.start())
    assert kinds(failed) == ["checkpointed", "reported", "failed"]
    assert failed[-1].cause == "user"
    assert failed[-1].message.strip().endswith("ValueError: as ordered")
    assert isinstance(after[-1], Ended)
    if bench.name == "ray":  # the pool always gives an order to the first idle slot
        assert pids(before) == pids(failed) == pids(after)


@every
def test_what_kind_of_failure_it_was_is_told(bench):
    """As a user error, the trial would be retried, and would fill the memory again."""
    for do, cause in [("fill", "oom"), ("overfill", "oversize"), ("diverge", "diverged")]:
        failed = bench.finish(bench.start(at=2, do=do))
        assert kinds(failed) == ["checkpointed", "reported", "failed"]
        assert failed[-1].cause == cause


@pytest.mark.parametrize("bench", ALONE[1:], indirect=True)
def test_a_checkpoint_that_is_damaged_is_no_fault_of_the_user(bench):
    first = bench.finish(bench.start())
    (Path(saved(first).path) / "total").write_text("torn")
    [failed] = bench.finish(bench.start(first=4, until=5, start=saved(first)))
    assert isinstance(failed, Failed)
    assert (failed.cause, failed.damaged) == ("infra", True)


@real
def test_slots_stay_warm_over_a_barrier(bench):
    """At a promotion all slots are idle, then each continues from a checkpoint."""
    firsts = bench.finish(bench.start(until=20, pause=0.05), bench.start(until=20, pause=0.05))
    warm = pids(*firsts)
    assert len(warm) == 2, "both slots were at work"
    for _ in range(3):
        orders = [
            bench.start(
                first=steps(before)[-1] + 1,
                until=steps(before)[-1] + 8,
                pause=0.05,
                start=saved(before),
            )
            for before in firsts
        ]
        firsts = bench.finish(*orders)
        assert pids(*firsts) == warm
    assert [losses(events)[-1] for events in firsts] == [4.4, 4.4]


@dying
def test_an_order_that_never_reports_is_killed(bench):
    hanging = bench.start(at=2, do="hang")
    bench.reach(hanging, 1)
    bench.backend.kill(hanging)
    events = bench.finish(hanging)
    assert kinds(events) == ["checkpointed", "reported", "ended"]
    await_none(lambda: living(pids(events)))
    assert isinstance(bench.finish(bench.start())[-1], Ended)


@dying
def test_a_rank_that_dies_while_idle_does_not_poison_the_next_order(bench):
    [pid] = pids(bench.finish(bench.start()))
    os.kill(pid, signal.SIGKILL)
    await_none(lambda: living([pid]))
    for _ in range(20):  # the engine must notice the death first
        bench.pump()
    for events in bench.finish(bench.start(pause=0.1), bench.start(pause=0.1)):
        assert isinstance(events[-1], Ended)
        assert pid not in pids(events)


@real
def test_the_limit_changes_while_orders_run(bench):
    assert bench.backend.slots() == 2
    two = [bench.start(until=900, pause=0.01) for _ in range(2)]
    for order in two:
        bench.reach(order, 1)
    free_with_one = ray.cluster_resources()["CPU"] - 1.0
    bench.backend.set_slot_limit(1)
    for _ in range(4):
        bench.pump()
    assert not any(bench.over(order) for order in two), "what runs is not cut off"
    bench.backend.decide(two[0], "stop")
    bench.finish(two[0])
    assert bench.backend.capacity() == 0
    bench.wait(lambda: ray.available_resources().get("CPU", 0) >= free_with_one + 0.5)
    bench.backend.set_slot_limit(2)
    third = bench.start()
    assert isinstance(bench.finish(third)[-1], Ended)
    bench.backend.decide(two[1], "stop")
    bench.finish(two[1])


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
@pairs
def test_a_rank_that_dies_fails_its_order_and_nothing_of_it_is_left(bench, victim):
    failed = bench.finish(bench.start(at=2, do="die", rank=victim))
    assert kinds(failed) == ["checkpointed", "reported", "failed"]
    assert (failed[-1].cause, failed[-1].damaged) == ("infra", False)
    await_none(lambda: living(pids(failed)))
    again = bench.finish(bench.start(first=2, start=saved(failed)))
    assert losses(again) == [0.2, 0.3]


@pytest.mark.full
@pytest.mark.parametrize("bench", IMPATIENT, indirect=True)
def test_ranks_that_hang_leave_their_stacks_and_make_room_for_others(bench):
    failed = bench.finish(bench.start(at=2, do="hang", rank=1, trial="t0001"))
    assert kinds(failed) == ["checkpointed", "reported", "failed"]
    assert failed[-1].cause == "stalled"
    assert failed[-1].message.startswith("no sign of life from ranks 0 and 1 for 12 s")
    logs = [bench.folder / "logs" / "t0001" / f"1-{rank}.log" for rank in range(2)]
    assert "in all_reduce" in logs[0].read_text()
    assert "in misbehave" in logs[1].read_text()
    await_none(lambda: living(pids(failed)))
    assert losses(bench.finish(bench.start(first=2, start=saved(failed)))) == [0.2, 0.3]


@pairs
def test_the_error_told_is_that_of_the_rank_that_raised(bench):
    failed = bench.finish(bench.start(at=2, do="raise", rank=1))
    assert failed[-1].cause == "user"
    assert failed[-1].message.strip().endswith("ValueError: as ordered")
    assert isinstance(bench.finish(bench.start())[-1], Ended)


@dying
def test_an_order_whose_rank_is_told_to_end_goes_on_in_another_process(bench):
    events = bench.finish(bench.start(until=900, at=2, do="leave", pause=0.01))
    assert kinds(events)[-3:] == ["checkpointed", "reported", "failed"]
    assert events[-1].cause == "preempt"
    await_none(lambda: living(pids(events)))
    start = saved(events)
    again = bench.finish(bench.start(first=start.step + 1, until=start.step + 2, start=start))
    assert isinstance(again[-1], Ended)
    assert not pids(events) & pids(again)


@dying
def test_the_death_of_rank_0_is_an_infra_failure(bench):
    failed = bench.finish(bench.start(at=2, do="die"))
    assert kinds(failed) == ["checkpointed", "reported", "failed"]
    assert failed[-1].cause == "infra"
