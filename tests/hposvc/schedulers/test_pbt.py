"""PBT against a reference that rescans all facts, and against what its docstring promises."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pbt_reference import Slots
from pbt_tables import beside_both

from hposvc.schedulers.pbt import Pbt
from hposvc.schedulers.scheduler import Closed, Ordered, Paused, Plan, Report, SearchDone, Wait

LR = {"lr": {}}


def drive(slots, rng):
    """Run a population to its end."""
    for _ in range(50_000):
        if len(slots.running) < slots.slots and rng.random() < 0.7:
            if isinstance(slots.fill(), SearchDone):
                return
        elif slots.running:
            slots.happen()
        elif rng.random() < 0.001:
            slots.close()  # the space is used up
    pytest.fail("the sweep does not end")


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    interval=st.integers(1, 5),
    first=st.integers(1, 3),
    last=st.integers(2, 12),
    population=st.integers(2, 14),
    slots=st.integers(1, 64),
    quantile=st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5]),
    burn_in=st.integers(0, 12),
)
def test_decisions_are_those_of_a_rescan_and_the_population_comes_to_its_end(
    seed, interval, first, last, population, slots, quantile, burn_in
):
    rng = Random(seed)
    plan = Plan(first, last, population, seed)
    policy = Pbt(interval, LR, quantile, burn_in=burn_in)
    cluster = Slots(beside_both(policy, plan), plan, rng, slots)
    drive(cluster, rng)
    assert not cluster.running
    assert not cluster.paused
    assert cluster.born <= population
    # No member ever goes a step twice: a population costs what its members' steps cost.
    assert sum(cluster.steps.values()) <= population * last


def population(losses, policy=None, last=8, trials=None):
    """Return a population that has just reported its first losses at step 2, in this order."""
    policy = policy or Pbt(2, LR)
    scheduler = policy.scheduler(Plan(1, last, trials or len(losses)))
    for number in range(1, len(losses) + 1):
        scheduler.apply(Ordered(f"t{number}", last))
    if trials in (None, len(losses)):
        scheduler.apply(Closed())
    verdicts = []
    for number, loss in enumerate(losses, 1):
        report = Report(f"t{number}", 2, loss)
        scheduler.apply(report)
        decision = scheduler.judge(report)
        verdicts.append(decision)
        if decision.verdict == "pause":
            scheduler.apply(Paused(f"t{number}"))
    return scheduler, verdicts


def test_the_worst_fifth_copies_one_of_the_best_fifth():
    losses = [0.1 * place for place in range(1, 9)]
    scheduler, verdicts = population([*losses, 0.95, 0.9])
    assert [verdict.reason for verdict in verdicts[-2:]] == ["exploit", "exploit"]
    assert verdicts[-2].detail.startswith("rank 9 of 9 at step 2, copies t")
    move = scheduler.next()
    assert (move.trial, move.until, move.milestones) == ("t10", 8, (4, 6))
    assert move.change.donor in ("t1", "t2")


def test_nobody_copies_in_the_burn_in():
    losses = [0.1 * place for place in range(1, 11)]
    _, verdicts = population(losses, Pbt(2, LR, burn_in=3))
    assert {verdict.reason for verdict in verdicts} == {"rank"}
    plan = Plan(1, 8, 10)
    assert [*Pbt(2, LR, burn_in=3).steps(plan)] == [4, 6]
    with pytest.raises(ValueError, match="burn_in is -1"):
        Pbt(2, LR, burn_in=-1)


def test_equal_members_copy_nobody():
    """All at chance level: there is nothing to gain."""
    _, verdicts = population([0.5] * 10)
    assert {verdict.verdict for verdict in verdicts} == {"continue"}


def test_donors_are_drawn_from_all_of_the_best():
    losses = [0.1 * place for place in range(1, 20)]
    drawn = Counter()
    for seed in range(200):
        scheduler = Pbt(2, LR).scheduler(Plan(1, 8, 20, seed))
        for number, loss in enumerate([*losses, 9.0]):
            scheduler.apply(Ordered(f"t{number}", 8))
            scheduler.apply(Report(f"t{number}", 2, loss))
        drawn[scheduler.donors["t19"]] += 1
    assert drawn.keys() == {"t0", "t1", "t2", "t3"}
    assert min(drawn.values()) > 30  # 50 are expected


def test_members_beyond_the_slots_take_turns_lowest_clock_first():
    """Two slots, five members, three intervals: nobody is ever two intervals ahead."""
    plan = Plan(1, 6, 5)
    slots = Slots(Pbt(2, LR).scheduler(plan), plan, None, 2)
    order = []
    while not isinstance(move := slots.scheduler.next(), SearchDone):
        if len(slots.running) == 2 or isinstance(move, Wait):
            trial = next(iter(slots.running))
            slots.steps[trial] += 1
            report = Report(trial, slots.steps[trial], 0.5)
            slots.scheduler.apply(report)
            if report.step == 6:
                slots.leave(trial)
            elif report.step in (2, 4) and slots.scheduler.judge(report).verdict == "pause":
                del slots.running[trial]
                slots.paused.add(trial)
                slots.scheduler.apply(Paused(trial))
            clocks = [slots.scheduler.clocks.get(f"t000{number}", 0) for number in range(1, 6)]
            assert max(clocks) - min(clocks) <= 2
        else:
            slots.fill()
            order.append(max(slots.running, key=list(slots.running).index))
    names = [f"t000{number}" for number in range(1, 6)]
    assert sorted(order[:5]) == sorted(order[5:10]) == names
