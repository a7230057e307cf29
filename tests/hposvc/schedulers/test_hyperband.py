"""Hyperband against a reference that rescans all facts, and against what the paper promises."""

import math
import sys
from random import Random

import pytest
from hyperband_reference import Brackets, Cluster, Renewed, Rescan, fates, layout, theory
from hypothesis import event, given, settings
from hypothesis import strategies as st
from simulated_sweeps import Flaky, make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.schedulers.hyperband import Hyperband
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Report,
    SearchDone,
    TrialStop,
)
from searchers.random_search import Random as RandomSearch


def both(eta, first, last, brackets=None):
    reference = Rescan(eta, layout(eta, first, last)[:brackets])
    return Brackets(Hyperband(eta, brackets).scheduler(Plan(first, last)), reference)


def stopped(scheduler):
    """Return the names of the paused trials that are to be stopped now."""
    return [stop.trial for stop in scheduler.trials_to_stop()]


def stand(scheduler, trial, step, loss):
    """Let a trial run to a rung and wait there."""
    scheduler.apply(Ordered(trial, step))
    scheduler.apply(Report(trial, step, loss))
    scheduler.apply(Paused(trial))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    eta=st.integers(2, 5),
    first=st.integers(1, 4),
    more=st.integers(0, 40),
    brackets=st.none() | st.integers(1, 3),
    slots=st.integers(1, 64),
    most=st.integers(1, 40),
)
def test_decisions_are_those_of_a_rescan_and_the_sweep_ends(
    seed, eta, first, more, brackets, slots, most
):
    last = first + more
    cluster = Cluster(both(eta, first, last, brackets), Random(seed), last, slots, most)
    assert cluster.run(), "the sweep does not end"
    for cut in cluster.scheduler.trials_to_stop():
        cluster.leave(cut.trial)
    assert not cluster.paused
    if brackets is None:
        assert sum(cluster.steps.values()) <= theory(eta, first, last, len(cluster.steps))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    eta=st.integers(2, 4),
    first=st.integers(1, 3),
    last=st.integers(12, 30),  # no less than the largest first * eta
    slots=st.integers(1, 64),
    most=st.integers(1, 25),
    every=st.integers(1, 3),
    backend=st.sampled_from([Simulation, Flaky]),
)
def test_whole_sweeps_decide_as_a_rescan_and_end(
    tmp_path_factory, seed, eta, first, last, slots, most, every, backend
):
    folder = tmp_path_factory.mktemp("sweep")
    spec = make_spec(
        seed=seed,
        fidelity={"min": first, "max": last},
        scheduler={"type": "hyperband", "eta": eta},
        trials={"max": most, "parallel": slots},
        checkpoints={"every": every},
        failure={"user_retries": 1, "infra_retries": 2},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    controller = make_controller(spec)
    controller.scheduler = both(eta, first, last)
    journal = Journal(Store(f"sqlite:///{folder / 'x.db'}"))
    state = Runner(
        "s",
        controller,
        backend(Setting("s", spec, folder, folder)),
        SyncProposer(spec, RandomSearch()),
        journal,
        Lease(journal.store, "s"),
    ).run("here:1")
    journal.store.close()
    assert state.finished
    assert len(state.trials) == most
    assert not {"PENDING", "RUNNING", "PAUSED"} & {t.state for t in state.trials.values()}
    assert sum(trial.step for trial in state.trials.values()) <= theory(eta, first, last, most)


@pytest.mark.parametrize(
    ("first", "last", "eta", "kinds"),
    [
        (2, 54, 3, [(27, [2, 6, 18, 54]), (12, [6, 18, 54]), (6, [18, 54]), (4, [54])]),
        (1, 26, 3, [(9, [2, 8, 26]), (5, [8, 26]), (3, [26])]),  # no power of eta: rounded down
        (5, 12, 3, [(1, [12])]),  # no room for a second rung
        (4, 4, 2, [(1, [4])]),
    ],
)
def test_rungs_end_at_the_last_step_and_lie_not_below_the_first(first, last, eta, kinds):
    shapes = Hyperband(eta).scheduler(Plan(first, last)).shapes
    assert [(shape.trials, list(shape.steps)) for shape in shapes] == kinds


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    eta=st.integers(2, 4),
    first=st.integers(1, 3),
    more=st.integers(1, 40),
    slots=st.integers(1, 64),
    most=st.integers(2, 60),
)
def test_who_is_tried_again_goes_on_where_it_would_have_and_the_sweep_ends(
    seed, eta, first, more, slots, most
):
    last = first + more
    scheduler = Renewed(Hyperband(eta), Plan(first, last))
    cluster = Cluster(scheduler, Random(seed), last, slots, most, returns=True)
    assert cluster.run(), "the sweep does not end"
    for cut in scheduler.trials_to_stop():
        cluster.stopped.add(cut.trial)
        cluster.leave(cut.trial)
    assert not cluster.paused
    for goes, may, must in fates(cluster, scheduler.facts, eta, first, last):
        event(f"goes on: {goes}")
        assert may if goes else not must


def test_a_trial_that_comes_back_in_time_is_compared_and_holds_its_bracket_up():
    scheduler = Renewed(Hyperband(eta=3), Plan(1, 9))
    for number in range(7):
        stand(scheduler, f"t{number}", 1, number)
    for trial in ("back", "slow"):
        scheduler.apply(Ordered(trial, 1))
    scheduler.apply(Left("back"))
    scheduler.take_back("back")
    stand(scheduler, "slow", 1, 9)
    assert scheduler.next() == NewTrial(3), "its bracket waits for it"
    stand(scheduler, "back", 1, 0.5)
    assert stopped(scheduler) == ["t2", "t3", "t4", "t5", "t6", "slow"]
    assert scheduler.next() == Advance("t0", 3)


def test_a_rung_from_which_no_trial_has_gone_on_waits_for_a_retried_one():
    scheduler = Renewed(Hyperband(eta=3), Plan(1, 9))
    for trial in [f"t{number}" for number in range(8)]:
        stand(scheduler, trial, 1, int(trial[1]))
    scheduler.apply(Ordered("back", 1))
    scheduler.apply(Left("back"))
    assert scheduler.next() == Advance("t0", 3)
    scheduler.take_back("back")
    assert scheduler.next() == NewTrial(3)
    stand(scheduler, "back", 1, -1)
    assert scheduler.next() == Advance("back", 3)


def test_a_trial_that_comes_back_late_goes_as_far_as_it_would_have():
    scheduler = Renewed(Hyperband(eta=3), Plan(1, 9))
    for trial in ("good", "poor"):
        scheduler.apply(Ordered(trial, 1))
        scheduler.apply(Left(trial))
    for number in range(7):
        stand(scheduler, f"t{number}", 1, number)
    scheduler.apply(Closed())
    for trial in ("t0", "t1", "t2"):
        stand(scheduler, trial, 3, int(trial[1]))
    stand(scheduler, "t0", 9, 0)
    for trial in ["t0", *stopped(scheduler)]:
        scheduler.apply(Left(trial))
    assert (scheduler.next(), scheduler.max_concurrency()) == (SearchDone(), 0)
    for trial, loss in [("good", 0.5), ("poor", 4.5)]:
        scheduler.take_back(trial)
        stand(scheduler, trial, 1, loss)
    where = "of 9 at step 1 of bracket 1, top 3 continue"
    assert scheduler.trials_to_stop() == [TrialStop("poor", "rung", f"rank 7 {where}")]
    scheduler.apply(Left("poor"))
    assert (scheduler.next(), scheduler.max_concurrency()) == (Advance("good", 3), 1)
    stand(scheduler, "good", 3, 0.5)
    where = "of 4 at step 3 of bracket 1, top 1 continue"
    assert scheduler.trials_to_stop() == [TrialStop("good", "rung", f"rank 2 {where}")]
    scheduler.apply(Left("good"))
    assert scheduler.next() == SearchDone()


def test_a_bracket_that_went_on_with_fewer_trials_stays_so_when_there_are_more():
    facts = Renewed(Hyperband(eta=3), Plan(1, 9))
    for trial in ("t0", "t1", "t2"):
        stand(facts, trial, 1, int(trial[1]))
    extended = Renewed(Hyperband(eta=3), Plan(1, 9), list(facts.facts))
    assert extended.next() == NewTrial(1), "no trial has gone on: the bracket takes more"
    facts.apply(Closed())
    stand(facts, "t0", 3, 0)
    extended = Renewed(
        Hyperband(eta=3), Plan(1, 9), [fact for fact in facts.facts if fact != Closed()]
    )
    assert stopped(extended) == stopped(facts) == ["t1", "t2"]
    assert extended.next() == facts.next() == Advance("t0", 9)
    stand(extended, "t0", 9, 0)
    assert extended.next() == NewTrial(3)


def test_equal_losses_rank_as_the_trials_came():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 3))
    for trial in ["t3", "t1", "t2"]:
        stand(scheduler, trial, 1, 0.5)
    assert scheduler.next() == Advance("t3", 3)
    assert stopped(scheduler) == ["t1", "t2"]
    where = "of 3 at step 1 of bracket 1, top 1 continue"
    details = [stop.detail for stop in scheduler.trials_to_stop()]
    assert details == [f"rank 2 {where}", f"rank 3 {where}"]


def test_free_slots_start_the_next_bracket_while_one_waits_and_old_brackets_go_first():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 9))  # brackets of 9, 5 and 3
    for number in range(8):
        stand(scheduler, f"t{number}", 1, number)
    scheduler.apply(Ordered("slow", 1))
    for number in range(5):
        assert scheduler.next() == NewTrial(3)
        stand(scheduler, f"u{number}", 3, number)
    assert scheduler.next() == Advance("u0", 9)
    scheduler.apply(Report("slow", 1, 0.5))
    scheduler.apply(Paused("slow"))
    for trial in ["t0", "slow", "t1"]:
        assert scheduler.next() == Advance(trial, 3)
        scheduler.apply(Ordered(trial, 3))
    assert scheduler.next() == Advance("u0", 9)
    scheduler.apply(Ordered("u0", 9))
    assert scheduler.next() == NewTrial(9)


def test_the_failed_count_in_their_rung_and_are_its_worst():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 9))
    for number in range(7):
        scheduler.apply(Ordered(f"t{number}", 1))
        scheduler.apply(Left(f"t{number}"))
    stand(scheduler, "good", 1, 0.5)
    stand(scheduler, "poor", 1, 0.7)
    assert scheduler.trials_to_stop() == []  # of nine, three may go on: the two that are left do
    for trial, loss in [("good", 0.4), ("poor", 0.3)]:
        assert scheduler.next() == Advance(trial, 3)
        stand(scheduler, trial, 3, loss)
    assert scheduler.next() == Advance("poor", 9)
    assert stopped(scheduler) == ["good"]


def test_the_last_trial_counts_though_it_is_ordered_when_the_sweep_is_closed():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 9))
    stand(scheduler, "poor", 1, 0.7)
    stand(scheduler, "poorer", 1, 0.8)
    scheduler.apply(Closed())
    assert scheduler.next() == Advance("poor", 3)
    assert stopped(scheduler) == ["poorer"]
    scheduler.apply(Ordered("good", 1))
    assert scheduler.trials_to_stop() == []
    scheduler.apply(Report("good", 1, 0.5))
    scheduler.apply(Paused("good"))
    assert scheduler.next() == Advance("good", 3)
    assert stopped(scheduler) == ["poor", "poorer"]


def test_a_diverged_trial_is_never_promoted_though_its_bracket_has_room():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 9))
    stand(scheduler, "diverged", 1, math.inf)
    scheduler.apply(Closed())
    assert scheduler.next() == SearchDone()
    assert stopped(scheduler) == ["diverged"]


def test_slots_are_kept_for_all_that_a_rung_is_going_to_promote():
    scheduler = Hyperband(eta=3).scheduler(Plan(1, 9))
    for number in range(8):
        stand(scheduler, f"t{number}", 1, number)
    scheduler.apply(Ordered("slow", 1))
    scheduler.apply(Closed())
    assert scheduler.max_concurrency() == 3
    scheduler.apply(Left("slow"))
    assert scheduler.max_concurrency() == 3
    for number in range(3):
        stand(scheduler, f"t{number}", 3, number)
    assert scheduler.max_concurrency() == 1
    stand(scheduler, "t0", 9, 0.1)
    scheduler.apply(Left("t0"))
    assert (scheduler.max_concurrency(), scheduler.next()) == (0, SearchDone())


def test_a_turn_costs_as_much_after_7000_trials_as_after_1000():
    """Count the Python calls in two windows of a sweep."""
    calls, marks = 0, {}

    def count(frame, kind, argument):
        nonlocal calls
        calls += kind in ("call", "c_call")

    cluster = Cluster(Hyperband().scheduler(Plan(1, 27)), Random(0), 27, 8, 7_500, trouble=False)
    sys.setprofile(count)
    try:
        while not cluster.fill():
            marks.setdefault(len(cluster.steps), calls)
            while len(cluster.running) == 8 or (cluster.closed and cluster.running):
                cluster.work()
    finally:
        sys.setprofile(None)
    early, late = marks[1_500] - marks[1_000], marks[7_500] - marks[7_000]
    assert late < 1.2 * early


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="eta is 1; choose"):
        Hyperband(eta=1)
    with pytest.raises(ValueError, match="brackets is 0; choose 1 or more"):
        Hyperband(brackets=0)


@pytest.mark.parametrize(
    ("first", "last", "rungs"),
    [(1, 50, (1, 5, 16, 50)), (2, 100, (3, 11, 33, 100)), (1, 27, (1, 3, 9, 27))],
)
def test_the_rungs_that_are_told_are_those_that_are_used(first, last, rungs):
    policy, plan = Hyperband(), Plan(first, last)
    assert policy.rungs(plan) == rungs
    assert {step for shape in policy.scheduler(plan).shapes for step in shape.steps} == {*rungs}


@pytest.mark.parametrize(("first", "refused"), [(6, False), (7, True)])
def test_trials_that_can_never_be_halved_are_refused(first, refused):
    problems = [*Hyperband().problems(None, Plan(first, 19))]
    assert [problem.path for problem in problems] == [("fidelity", "min")] * refused
    assert all("give 6 or less" in problem.message for problem in problems)
