"""What more trials would gain."""

import math
from itertools import pairwise

import numpy as np
import pytest

from hposvc.state.prospects import prospect
from searchers.pace import GAUSSIAN_PROCESS, LEARNING, WITHOUT_RESULTS


def bowl(rng, trials):
    return ((rng.random((trials, 3)) - 0.3) ** 2).sum(axis=1)


def gain_of(losses, trials):
    return max(0.0, float(losses[:trials].min() - losses[trials:].min()))


def test_a_promise_holds_for_random_search_of_a_bowl():
    held, promised, gained = [], [], []
    for rng in np.random.default_rng(0).spawn(300):
        losses = bowl(rng, 60)
        found, true = prospect([*losses[:40]], 20, WITHOUT_RESULTS), gain_of(losses, 40)
        held.append(found.gain.holds(true))
        promised.append(found.gain.value)
        gained.append(true)
    assert 0.82 <= np.mean(held) <= 0.97
    assert np.mean(promised) == pytest.approx(np.mean(gained), rel=0.35)


@pytest.mark.parametrize(("trials", "more"), [(20, 20), (40, 10), (100, 20), (400, 80)])
def test_values_in_random_order_improve_with_the_chance_of_records(trials, more):
    chances = [
        prospect([*rng.random(trials)], more, WITHOUT_RESULTS).chance
        for rng in np.random.default_rng(3).spawn(50)
    ]
    assert np.mean(chances) == pytest.approx(more / (trials + more), abs=0.04)


@pytest.mark.parametrize("pace", [WITHOUT_RESULTS, LEARNING, GAUSSIAN_PROCESS])
def test_more_trials_gain_more_and_the_interval_holds_the_mean(pace):
    losses = [*bowl(np.random.default_rng(4), 30)]
    found = [prospect(losses, more, pace) for more in (1, 5, 20, 100)]
    for less, more in pairwise(found):
        assert less.chance < more.chance < 1
        assert less.gain.value < more.gain.value
        assert less.gain.high <= more.gain.high
    for gain in (each.gain for each in found):
        assert gain.low <= gain.value <= min(gain.high, max(losses))


@pytest.mark.parametrize("pace", [WITHOUT_RESULTS, LEARNING, GAUSSIAN_PROCESS])
def test_a_search_that_improved_of_late_is_promised_more(pace):
    falling = [1.0 / trial for trial in range(1, 31)]
    stuck = [falling[-1], *falling[:-1]]
    assert prospect(falling, 20, pace).chance > prospect(stuck, 20, pace).chance
    assert prospect(falling, 20, pace).gain.value > prospect(stuck, 20, pace).gain.value


@pytest.mark.parametrize(
    ("losses", "most"),
    [
        ([10.0**-each for each in range(1, 26)], 1e-25),  # a loss that falls over decades
        ([-1 + 0.5**each for each in range(1, 20)], 0.5**19),  # an accuracy
        ([0.1 + 0.9**each for each in range(1, 20)], 0.1 + 0.9**19),
    ],
)
def test_no_more_is_promised_than_there_is_to_gain(losses, most):
    promise = prospect(losses, 20, GAUSSIAN_PROCESS)
    assert 0 < promise.gain.value <= promise.gain.high <= most * (1 + 1e-9)


def test_many_trials_with_the_best_value_do_not_rule_out_a_gain():
    """An accuracy on a few hundred samples has few values."""
    assert prospect([*[0.1] * 12, *[0.2] * 12], 20, GAUSSIAN_PROCESS).gain.value > 0


def test_trials_without_a_value_count_as_trials_that_gain_nothing():
    losses = [*np.random.default_rng(2).random(40)]
    stopped = [each for loss in losses for each in (loss, math.inf, math.inf)]
    assert (
        prospect(stopped, 20, WITHOUT_RESULTS).chance < prospect(losses, 20, WITHOUT_RESULTS).chance
    )


@pytest.mark.parametrize("exploded", [1e12, 1e30, 1e90])
def test_a_loss_that_exploded_takes_no_hope_from_the_others(exploded):
    losses = [*bowl(np.random.default_rng(5), 30)]
    found = prospect([*losses[:15], exploded, *losses[15:]], 20, GAUSSIAN_PROCESS)
    assert found.gain.value == pytest.approx(
        prospect(losses, 20, GAUSSIAN_PROCESS).gain.value, rel=0.1
    )
