"""Hyperband against a reference that rescans all facts, and against what the paper promises."""

import sys
from random import Random

import pytest
from hyperband_reference import Cluster, Renewed, both, fates, theory
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from hposvc.schedulers.hyperband import Hyperband
from hposvc.schedulers.scheduler import Plan


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
@example(seed=647, eta=2, first=1, more=33, slots=3, most=47)  # it takes a killed trial's place
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
    assert all("give 6 or less" in problem.text for problem in problems)
