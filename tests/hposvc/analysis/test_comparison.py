"""Groups of sweeps compared at equal cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hposvc.analysis.comparison import SweepRun, compare

LOSSES = st.lists(st.integers(-(10**6), 10**6).map(float), min_size=3, max_size=8)


def runs_of(group, losses, first_seed=0, task="t"):
    """Return a run for each loss, which is found at half of its cost; 10 before."""
    return [
        SweepRun(f"{group}-{task}-{seed}", group, task, seed, [1.0, 2.0], [loss + 10, loss], 4.0)
        for seed, loss in enumerate(losses, first_seed)
    ]


@given(LOSSES, st.booleans())
@settings(max_examples=12, deadline=None)
def test_equal_groups_are_an_even_bet(losses, paired):
    other = runs_of("b", losses, first_seed=0 if paired else 100)
    answer = compare([*runs_of("a", losses), *other])
    last = answer.standings[1]
    assert last.better == pytest.approx(0.5, abs=0.03)
    assert last.verdict == "open"
    assert last.rank.value == pytest.approx(1.5)
    assert answer.pairing == ("seed" if paired else "none")


@given(LOSSES, st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_group_that_dominates_is_almost_surely_better(losses, paired):
    margin = 20 * (1 + max(losses) - min(losses))
    won = [loss - margin for loss in losses]
    other = runs_of("b", won, first_seed=0 if paired else 100)
    last = compare([*runs_of("a", losses), *other]).standings[1]
    assert (last.rank.value, last.rank.low) == (1.0, 1.0)
    assert 1.1 < last.rank.high < 1.5  # it may lose the next time
    assert last.lead.value == pytest.approx(margin)
    if not paired and len(set(losses)) > 1:
        assert last.better > 0.98
        assert last.verdict == "better"
        assert 0 < last.lead.low <= last.lead.value <= last.lead.high
    else:  # nothing varies, so only the number of runs tells
        assert not last.lead.known
        ways = 2 ** len(losses) if paired else math.comb(2 * len(losses), len(losses))
        assert last.better == pytest.approx(1 - 1 / ways)


@pytest.mark.parametrize("pairs", range(2, 8))
def test_the_probability_with_pairs_is_that_of_students_t(pairs):
    differences = []
    for rng in np.random.default_rng(pairs).spawn(12):
        mine, theirs = rng.standard_normal((2, pairs))
        leads = theirs - mine + 0.8
        answer = compare([*runs_of("a", theirs + 0.8), *runs_of("b", mine)])
        expected = stats.t.cdf(leads.mean() / stats.sem(leads), pairs - 1)
        differences.append(abs(answer.standings[1].better - expected))
    assert np.mean(differences) < 0.03  # a plain bootstrap: 0.04 of seven pairs, 0.12 of two


def test_tasks_of_few_runs_are_no_surer_for_tasks_of_many():
    """Two tasks count alike, so the mean is no better known than that of the task with two runs."""
    called = 0
    for rng in np.random.default_rng(22).spawn(60):
        runs = [
            run
            for first, group in ((0, "a"), (100, "b"))
            for size, task in ((2, "small"), (20, "large"))
            for run in runs_of(group, rng.standard_normal(size), first, task)
        ]
        called += compare(runs).standings[1].verdict != "open"
    assert called <= 7  # 3 expected


@given(LOSSES, LOSSES, LOSSES, st.permutations([0, 1, 2]))
@settings(max_examples=12, deadline=None)
def test_the_order_of_groups_changes_nothing_but_who_is_the_first(one, two, three, order):
    groups = [runs_of("a", one), runs_of("b", two, 100), runs_of("c", three, 200)]
    together = compare([run for group in groups for run in group])
    before = {each.name: each for each in together.standings}
    after = compare([run for place in order for run in groups[place]])
    for each in after.standings:
        assert each.rank.value == pytest.approx(before[each.name].rank.value)
        assert each.rank.low == pytest.approx(before[each.name].rank.low, nan_ok=True)
        assert each.target_cost == pytest.approx(before[each.name].target_cost)
    first = after.groups[0]
    if first != "a":
        (mine,) = (each.better for each in after.standings if each.name == "a")
        assert mine + before[first].better == pytest.approx(1)


@pytest.mark.parametrize("paired", [True, False])
def test_at_most_one_in_twenty_equal_searchers_is_called_better(paired):
    """benchmarks/comparisons.py is the long form."""
    called = 0
    for rng in np.random.default_rng(21).spawn(80):
        one, other = rng.standard_normal((2, 5))
        runs = [*runs_of("a", one), *runs_of("b", other, 0 if paired else 100)]
        called += compare(runs).standings[1].verdict != "open"
    assert called <= 9  # 4 expected


def test_a_group_counts_as_better_at_a_higher_level_among_many():
    rng = np.random.default_rng(4)
    called = 0
    for each in rng.spawn(30):
        runs = [run for name in "abcde" for run in runs_of(name, each.standard_normal(6))]
        called += any(other.verdict != "open" for other in compare(runs).standings)
    assert called <= 5


def test_values_are_taken_at_the_cost_that_all_have_spent():
    long = SweepRun("a-0", "a", "t", 0, [1.0, 9.0], [5.0, 1.0], 10.0)
    short = SweepRun("b-0", "b", "t", 0, [1.0, 3.0], [7.0, 4.0], 4.0)
    answer = compare([long, short])
    assert answer.budgets == {"t": 4.0}
    first, second = answer.standings
    assert first.losses == pytest.approx([5, 5, 5, 5])
    assert second.losses == pytest.approx([7, 7, 4, 4])
    assert (second.better, second.loss.known) == (None, False)  # one run says nothing of its luck
    assert second.verdict == "open"
    assert answer.targets == {"t": 5.0}  # what the worse one has at equal cost
    assert (first.target_cost, second.target_cost) == (1.0, 3.0)


def test_the_time_to_target_is_what_all_runs_spent_by_the_number_that_got_there():
    fast = [SweepRun(f"a-{n}", "a", "t", n, [1.0], [0.0], 8.0) for n in range(3)]
    slow = [SweepRun(f"b-{n}", "b", "t", n, [1.0, 4.0], [9.0, 0.0], 8.0) for n in range(2)]
    never = SweepRun("b-2", "b", "t", 2, [1.0], [9.0], 8.0)
    first, second = compare([*fast, *slow, never]).standings
    assert first.target_cost == pytest.approx(1.0)
    assert second.target_cost == pytest.approx((4 + 4 + 8) / 2)
    assert second.cost_ratio.value == pytest.approx(8.0)
    assert second.cost_ratio.low < 1 < 50 < second.cost_ratio.high  # of so few it may be luck


def test_several_tasks_count_alike_whatever_their_unit():
    small = [*runs_of("a", [1.0, 1.1, 1.2]), *runs_of("b", [0.5, 0.6, 0.7])]
    large = [
        replace(run, task="u", sweep=f"{run.sweep}-u", losses=[1e6 * x for x in run.losses])
        for run in small
    ]
    answer = compare([*small, *large])
    assert (answer.pairing, answer.pairs) == ("seed", 6)
    only = compare(small)
    assert answer.standings[1].rank.value == only.standings[1].rank.value == 1.0
    assert answer.standings[1].better == 1 - 1 / 2**6  # the lead is the same in all pairs


def test_what_only_one_group_has_is_left_out():
    runs = [*runs_of("a", [1.0, 2.0, 3.0, 4.0]), *runs_of("b", [1.0, 2.0, 3.0])]
    assert compare(runs).unpaired == ["a-t-3"]
    short = [replace(run, end=2.5) if run.seed == 3 else run for run in runs]
    assert compare(short).budgets == {"t": 4.0}  # the one that is left out spent 2.5
    alien = runs_of("a", [7.0], task="only-of-a")
    assert {run.task for run in compare([*runs, *alien]).runs} == {"t"}
    apart = [*runs_of("a", [1.0, 2.0], task="x"), *runs_of("b", [3.0, 4.0], task="y")]
    assert compare(apart).tasks == [""]  # they share no task: one is made of all


def test_it_says_how_many_more_runs_a_difference_needs():
    rng = np.random.default_rng(1)
    few = rng.normal([[0.0], [-0.3]], 1.0, (2, 6))
    answer = compare([*runs_of("a", few[0]), *runs_of("b", few[1])])
    assert answer.standings[1].verdict == "open"
    needed = answer.needed("b")
    assert 6 < needed < 2000
    lead, deviation = answer.standings[1].lead.value, (few[0] - few[1]).std(ddof=1)
    found = 0
    for each in rng.spawn(40):  # as many pairs with such a lead tell the groups apart
        leads = each.normal(lead, deviation, needed)
        runs = [*runs_of("a", np.zeros(needed)), *runs_of("b", -leads)]
        found += compare(runs).standings[1].verdict != "open"
    assert 26 <= found <= 38  # 32 expected
    assert compare([*runs_of("a", [1.0]), *runs_of("b", [2.0])]).needed("b") is None
